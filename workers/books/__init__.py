"""Work on the books behind the engine: totals for finance."""
