"""The ledger: rules, engine and books. `core` decides, `engine` commits, `store` speaks SQL."""
