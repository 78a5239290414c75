"""Secrets: the keys made of the server key, what they seal and hash, and where that is stored."""
