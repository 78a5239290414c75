"""Attacks on a running system: what each does to another platform, and the limit of that."""
