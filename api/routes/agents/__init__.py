"""Agents: management by the platform, and the operations that agents call themselves."""
