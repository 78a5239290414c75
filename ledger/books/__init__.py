"""The books of finance: business days, and the day on which an entry is posted."""
