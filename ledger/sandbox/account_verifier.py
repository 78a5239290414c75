"""The sandbox's payment rail: the end of an account's identifier chooses what it reports."""

from collections.abc import Mapping, Sequence
from typing import Final

from typing_extensions import override

from cardledger.ledger.ports import AccountCheck, AccountVerifier
from cardledger.schema.ids import Id
from cardledger.schema.wire.customers.beneficiaries import (
    BusinessBeneficiary,
    IndividualBeneficiary,
)
from cardledger.schema.wire.customers.external_accounts import AccountInfo, VerificationStatus

_UNKNOWN_ACCOUNT: Final = "105"
_UNPROVEN: Final = "108"

MICRO_DEPOSITS: Final = (12, 34)
"""Minor units that every challenge pays."""

_NAME_MATCHES: Final[Mapping[str, VerificationStatus]] = {
    "102": "NOT_MATCHED",
    "103": "PARTIAL_MATCH",
    "104": "PENDING",
    "106": "UNSUPPORTED",
    "107": "CHECKED_BY_RECEIVING_FI",
}
"""Any other ending is `MATCHED`."""


class SandboxAccountVerifier(AccountVerifier):
    """Knows every account and matches every name, unless a suffix says otherwise."""

    @override
    def checks_digits(self) -> bool:
        return False  # So that an identifier of every type can end in every suffix.

    @override
    def check(self, info: AccountInfo) -> AccountCheck:
        # Of an address like an e-mail's, the part before the @ decides.
        suffix = info.identifier.partition("@")[0][-3:]
        if suffix == _UNKNOWN_ACCOUNT:
            objection = f"does not exist: no sandbox account ends in {_UNKNOWN_ACCOUNT}"
            return AccountCheck(objection=objection)
        if info.owner is None:
            return AccountCheck()
        if suffix == _UNPROVEN:
            name = _verified_name(info.owner, "MATCHED")
            return AccountCheck(name_match="MATCHED", verified_name=name, requires_challenge=True)
        match = _NAME_MATCHES.get(suffix, "MATCHED")
        return AccountCheck(name_match=match, verified_name=_verified_name(info.owner, match))

    @override
    def micro_deposits(self, challenge_id: Id) -> Sequence[int]:
        return MICRO_DEPOSITS


def _verified_name(
    owner: IndividualBeneficiary | BusinessBeneficiary, match: VerificationStatus
) -> str | None:
    """Return the holder's name as a rail returns it: abbreviated for a `PARTIAL_MATCH`."""
    if match not in {"MATCHED", "PARTIAL_MATCH"}:
        return None
    name = owner.full_name if isinstance(owner, IndividualBeneficiary) else owner.legal_name
    if match == "MATCHED":
        return name
    first, space, rest = name.partition(" ")
    return f"{first[:1]}.{space}{rest}"
