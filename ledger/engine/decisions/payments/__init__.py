"""Decisions about transfers and payments: the messages that come, the steps that are taken."""
