"""What the last three characters of a merchant descriptor ask of the sandbox."""

from typing import Final

from cardledger.ledger.core.events import DeclineReason

_FORCED_DECLINES: Final = {
    "002": DeclineReason.INSUFFICIENT_FUNDS,
    "003": DeclineReason.CARD_PAUSED,
}


def forced_decline(descriptor: str) -> DeclineReason | None:
    """Return the refusal that `descriptor` asks for; None: decide as usual."""
    return _FORCED_DECLINES.get(descriptor[-3:])


def refuses_pull(descriptor: str) -> bool:
    """Return whether a pull after a clearing fails for `descriptor`, as if without funds."""
    return descriptor.endswith("002")


def confirms_later(descriptor: str) -> bool:
    """Return whether the pull of an authorization stays pending for a while."""
    return descriptor[-3:] in {"005", "006"}


def confirms(descriptor: str) -> bool:
    """Return what a pending pull's confirmation will say."""
    return not descriptor.endswith("006")
