"""The rules of card money, pure: standard library only, no clock, no I/O."""
