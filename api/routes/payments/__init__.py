"""Payments: transfers in and out, and what they cost."""
