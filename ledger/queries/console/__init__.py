"""Queries of the console: figures, histories and lists for people."""
