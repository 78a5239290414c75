"""Decide the messages of one batch in memory: one module a message family. No SQL.

`Batch` (batch.py) takes the messages in order and hands each to its family: network events,
card closures, deposits, transfers, recovery. The rules are those of `cardledger.ledger.core`; what
events leave behind is collected by `cardledger.ledger.engine.change_set`.
"""
