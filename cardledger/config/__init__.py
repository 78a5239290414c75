"""Settings, logs, console output."""
