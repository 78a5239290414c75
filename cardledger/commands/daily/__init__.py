"""Commands for daily work: lists, explanations, live figures, stories to play in a sandbox."""
