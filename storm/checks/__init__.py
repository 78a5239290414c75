"""The promises, checked against the record."""
