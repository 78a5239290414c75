"""What is derived from events: roll-ups, histories, explanations, transfers, accounts."""
