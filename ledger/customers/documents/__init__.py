"""Documents of customers and beneficial owners: evidence for their verification."""
