"""Webhook delivery: sender, fair share, HTTP client."""
