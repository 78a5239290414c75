"""TCP connections of the HTTP facade: how many, how long, from whom, and what uvicorn reads."""
