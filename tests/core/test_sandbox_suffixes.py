"""The magic suffixes of the sandbox: what each requests, and that no generated id has one."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.ports import NONE_CONNECTED
from cardledger.ledger.sandbox import adapters
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.sandbox.issuer import CardSuffix, FundingSourceSuffix
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DELAY = timedelta(seconds=30)
RAIL = SandboxFundingRail(delay=DELAY)
ADAPTERS = adapters.adapters(KeyRing("k" * 32), delay=DELAY)


def test_the_end_of_a_descriptor_requests_a_decline_or_a_refused_pull() -> None:
    assert RAIL.issuer_decline("CAFE 002") is DeclineReason.INSUFFICIENT_FUNDS
    assert RAIL.issuer_decline("CAFE 003") is DeclineReason.CARD_PAUSED
    assert RAIL.issuer_decline("CAFE") is None
    assert RAIL.issuer_decline("002 CAFE") is None
    assert RAIL.issuer_decline("") is None
    assert RAIL.refuses_pull("CAFE 002")
    assert not RAIL.refuses_pull("CAFE 003")


def test_two_ends_of_a_descriptor_request_a_late_confirmation() -> None:
    assert RAIL.confirms_later("CAFE 005")
    assert RAIL.confirms_later("CAFE 006")
    assert not RAIL.confirms_later("CAFE 004")
    assert RAIL.confirms("CAFE 005")
    assert not RAIL.confirms("CAFE 006")
    assert RAIL.confirmation_due_at(NOON) == NOON + DELAY


@given(st.text())
def test_a_descriptor_without_a_magic_suffix_changes_nothing(descriptor: str) -> None:
    if descriptor[-3:] in {"002", "003", "005", "006"}:
        return
    assert RAIL.issuer_decline(descriptor) is None
    assert not RAIL.refuses_pull(descriptor)
    assert not RAIL.confirms_later(descriptor)


def test_no_generated_id_ends_in_a_magic_suffix() -> None:
    suffixes = {*CardSuffix, *FundingSourceSuffix}

    endings = {str(new_id())[-3:] for _ in range(20_000)}

    assert not endings & suffixes
    assert len(endings) > 4000  # Of 4096, all but the reserved ones.


def test_the_sandbox_connects_every_port_and_its_absence_none() -> None:
    ports = ("issuer", "identity_verifier", "account_verifier", "funding_rail")

    assert all(getattr(ADAPTERS, port) is not None for port in ports)
    assert all(getattr(NONE_CONNECTED, port) is None for port in ports)


@pytest.mark.parametrize(
    ("platform_card_id", "due_at"),
    [("mine", NOON), ("mine-001", None), ("mine-002", NOON), ("mine-005", NOON + DELAY)],
)
def test_the_end_of_a_platform_card_id_decides_when_the_issuer_answers(
    platform_card_id: str, due_at: datetime | None
) -> None:
    issuer = ADAPTERS.issuer
    assert issuer is not None

    assert issuer.answer_due_at(platform_card_id, requested_at=NOON) == due_at
    is_issued = issuer.issue(new_id(), platform_card_id, at=NOON) is not None
    assert is_issued == (not platform_card_id.endswith("002"))
