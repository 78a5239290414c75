"""What was measured, as a table, a JSON document and charts."""
