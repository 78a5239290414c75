"""Platforms, their settings and API tokens."""
