"""Webhooks on the wire."""
