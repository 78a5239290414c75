"""Reads for API, finance and operators: card transactions, live figures, the audit."""
