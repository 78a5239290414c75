"""Payments as they are requested: their rows, and the messages that the engine decides."""
