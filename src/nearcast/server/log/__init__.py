"""What the server writes down, in one order."""
