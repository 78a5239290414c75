"""Databases, credentials and the ready file of an installation."""
