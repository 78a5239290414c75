"""One batch, one commit: parse, load, decide, write. The hot path."""
