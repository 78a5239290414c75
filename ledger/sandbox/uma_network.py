"""The sandbox's UMA network: the name of an address says what its institution answers.

`$success.usd@sandbox.uma.money` takes dollars; the part behind the last dot is the currency.
"""

import re
from collections.abc import Mapping
from typing import Final

from typing_extensions import override

from cardledger.ledger.ports import UmaFailedError, UmaFailure, UmaNetwork, UmaReceiver
from cardledger.schema.wire.common import CURRENCIES

DOMAINS: Final = ("sandbox.uma.money", "sandbox.grid.uma.money")

_ADDRESS: Final = re.compile(r"\$([a-z.]+)\.([a-z]{3,8})@([a-z.]+)")

_NAMES: Final = frozenset({"success", "pending.long", "fail.compliance", "fail.payreq", "asks"})
"""The names of addresses that can be looked up; what becomes of a payment, its rail decides."""

_FAILURES: Final[Mapping[str, UmaFailure]] = {
    "fail.version": UmaFailure.UNSUPPORTED_VERSION,
    "fail.negotiation": UmaFailure.NO_COMMON_VERSION,
    "fail.lookup": UmaFailure.LOOK_UP_FAILED,
    "fail.keys": UmaFailure.KEYS_UNAVAILABLE,
}


class SandboxUmaNetwork(UmaNetwork):
    """Answers for the two domains of the sandbox; all others are unknown."""

    @override
    def find(self, address: str) -> UmaReceiver | None:
        parts = _ADDRESS.fullmatch(address)
        if parts is None or parts[3] not in DOMAINS:
            return None
        name, currency = parts[1], parts[2].upper()
        if name in _FAILURES:
            raise UmaFailedError(_FAILURES[name])
        if name not in _NAMES or currency not in CURRENCIES:
            return None
        asked = {"FULL_NAME": True, "NATIONALITY": False} if name == "asks" else {}
        return UmaReceiver(
            address=address, currencies=(currency,), name="Receiver Example", required_fields=asked
        )

    @override
    def accept(self, address: str) -> None:
        parts = _ADDRESS.fullmatch(address)
        if parts is not None and parts[1] == "fail.payreq":
            raise UmaFailedError(UmaFailure.PAYMENT_REQUEST_FAILED)
