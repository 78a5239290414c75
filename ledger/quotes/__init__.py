"""Quotes: what a payment in another currency costs, and its execution."""
