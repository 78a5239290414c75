"""Agents and their actions on the wire."""
