"""Cards and their transactions on the wire."""
