"""The attacks, one module for each kind of attacker and means."""
