"""Reads for API and finance: card transactions, transactions, the audit."""
