"""Customers: the registry, verifications, beneficial owners and accounts."""
