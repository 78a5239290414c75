"""Conversions between currencies: rates, receivers, quotes."""
