"""Whether this installation runs the rules compiled or interpreted."""

from cardledger.ledger.core import card_transaction


def is_compiled() -> bool:
    """Return whether mypyc has compiled the rules (docs/decisions/0023)."""
    return not card_transaction.__file__.endswith(".py")
