"""Payments on the wire: transfers in and out, their parties, fees and refunds."""
