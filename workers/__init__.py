"""Workers and their client: the only code that knows Dramatiq and Redis."""
