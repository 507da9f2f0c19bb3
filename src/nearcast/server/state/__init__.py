"""What the server knows besides its log: definitions, tenants, keys, cursors and sinks."""
