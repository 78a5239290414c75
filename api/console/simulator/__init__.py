"""What the simulator of the console offers: operations, sandbox values, stories. No page of it."""
