"""Lists: their filters and their pages."""
