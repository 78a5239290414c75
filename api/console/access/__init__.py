"""Who may see the console, and what a form of it must have."""
