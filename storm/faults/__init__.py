"""The kinds of faults, and what each may use."""
