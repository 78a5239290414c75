"""Exchange rates: where they are from, and what a conversion of one currency into another costs."""
