"""The JSON of a card transaction is the same with and without its model."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.core.card_transaction import CardTransaction
from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.status import Closure
from cardledger.ledger.projections.card_transaction import (
    Conversion,
    Identity,
    RollUp,
    render,
    wire,
)
from tests.ids import IDS

_amounts = st.integers(min_value=0, max_value=2**63 - 1)
_times = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the zone follows
_names = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
_identities = st.builds(
    Identity,
    id=IDS,
    customer_id=IDS,
    platform_id=IDS,
    platform_customer_id=_names,
    card_id=IDS,
    account_id=IDS,
    issuer_transaction_token=_names,
    currency=st.sampled_from(["USD", "JPY", "USDC"]),
    descriptor=st.none() | _names,
    mcc=st.none() | st.just("5812"),
    country=st.none() | st.just("US"),
    created_at=_times,
)
_states = st.builds(
    CardTransaction,
    **dict.fromkeys(
        ("sequence", "authorizations", "settlement_count", "refund_count", "pull_count",
         "pending_count", "release_count", "authorized", "settled", "refunded", "pulled",
         "pending", "open_pull", "unpaid", "released", "declined", "written_off",
         "debits_written_off"),
        _amounts,
    ),
    closed_by=st.none() | st.sampled_from(Closure),
    decline_reason=st.none() | st.sampled_from(DeclineReason),
    credit_authorized=st.none() | _amounts,
)  # fmt: skip
_roll_ups = st.builds(
    RollUp,
    identity=_identities,
    state=_states,
    debt_since=st.none(),
    debt_id=st.none(),
    expires_at=st.none() | _times,
    last_event_at=st.none() | _times,
    updated_at=_times,
    conversion=st.none()
    | st.builds(
        Conversion,
        merchant_amount=_amounts,
        merchant_currency=st.sampled_from(["EUR", "JPY", "BTC"]),
        billing_amount=_amounts,
        rate=st.decimals("0.000000000001", 10**11, places=12),
    ),
)


@given(_roll_ups)
def test_the_json_of_a_roll_up_is_the_json_of_its_model(roll_up: RollUp) -> None:
    assert list(wire(roll_up).items()) == list(render(roll_up).wire().items())
