"""Identifiers for properties: any UUID, as the ledger has it."""

from typing import Final

from hypothesis import strategies as st

from cardledger.schema.ids import Id

IDS: Final = st.uuids().map(lambda key: Id(key.bytes))
