"""Customers, beneficial owners, verifications and external accounts."""
