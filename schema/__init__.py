"""The shapes: tables of the record (`tables`) and messages of the wire (`wire`)."""
