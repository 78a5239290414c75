"""Cards: issuing, life cycle, card numbers and their reveal."""
