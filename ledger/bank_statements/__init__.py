"""Statements of the bank: the canonical form, profiles of banks, MT940, strict checks; pure.

What the form of a row has in common with settlement files is in `network_files`.
"""
