"""Network events over HTTP: bodies with many events, their limits, outcomes as a stream."""
