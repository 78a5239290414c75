"""Tools for tests: a simple model of the money rule, strategies for life cycles, a state machine.

`model` needs only the standard library. `strategies` and `machine` need Hypothesis:
`pip install "cardledger[testing]"`. docs/testing.md shows how to run them on your own consumer.
"""
