"""Customers, accounts and verifications on the wire."""
