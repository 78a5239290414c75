"""The load during faults, and the answers that callers receive."""
