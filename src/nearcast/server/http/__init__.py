"""The server's HTTP interface: resources, problems, keys and limits."""
