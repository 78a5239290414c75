"""For engineers who test: a naive model of the money rule, life cycles, and a state machine.

`model` needs nothing beside the standard library. `strategies` and `machine` need Hypothesis:
`pip install "cardledger[testing]"`. docs/testing.md shows how to run them on your own consumer.
"""
