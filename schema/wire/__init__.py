"""Pydantic models of everything that enters or leaves: the only place where JSON has a shape."""
