"""Metrics of a process: what is counted, how it is read, and who may read it."""
