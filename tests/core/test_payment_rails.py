"""The rails of external accounts, and what they carry."""

from typing import get_args

import pytest

from cardledger.ledger.core.payments import rails
from cardledger.ledger.payments.parties import rails_of
from cardledger.schema.wire.common import PaymentRail
from cardledger.schema.wire.customers.account_variants import VARIANTS, Variant


def test_every_rail_of_the_interface_is_in_the_table() -> None:
    assert set(rails.RAILS) == set(get_args(PaymentRail))


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_every_rail_of_an_account_carries_its_currencies(variant: Variant) -> None:
    for currency in variant.currencies or ():
        for rail in rails_of({"accountType": variant.account_type}):
            assert rails.takes(rail, currency, 1), (rail, currency)
