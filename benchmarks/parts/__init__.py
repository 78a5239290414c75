"""Measuring: how fast the ledger is on the machine at hand, beside what the server can do at all.

Every part measures real code on a real PostgreSQL with `fsync` and `synchronous_commit` on, and
says how: medians over rounds, with their spread. Rates of different machines cannot be compared;
ratios within one run can.
"""
