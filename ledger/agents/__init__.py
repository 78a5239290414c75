"""Agents: registry, spending policy, actions that wait for approval, device codes."""
