"""The sandbox: adapters whose answers are chosen by magic suffixes of the caller's own data.

Only composition roots import this package; everything else knows the ports (`ledger.ports`).
Every magic suffix is here. Those that an id can end in are reserved by `ledger.storage.ids`.
"""
