"""Instructions for quotes that are paid from outside: asked before a quote is recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cardledger.schema.ids import Id

_REFERENCE_LENGTH: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """The ways to pay the quote `quote_id`; None: none in its currency, or by its network."""

    quote_id: Id
    ways: Sequence[Mapping[str, Any]] | None


def reference_of(quote_id: Id) -> str:
    """Return the reference by which money from outside is matched with a quote."""
    return f"Q{bytes(quote_id).hex()[-_REFERENCE_LENGTH:].upper()}"
