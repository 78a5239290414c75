"""What a withdrawal of a crypto currency costs, estimated."""

from typing import Any
from uuid import uuid4

import pytest

from tests.api.support import Api, ok, refused

PATH = "/crypto/estimate-withdrawal-fee"
ADDRESSES = {
    "BASE": "0x52908400098527886E0F7030069857D2E4169EE7",
    "ETHEREUM": "0x52908400098527886E0F7030069857D2E4169EE7",
    "POLYGON": "0x52908400098527886E0F7030069857D2E4169EE7",
    "SOLANA": "7S3P4HxJpyyigGzodYwHtCxZyUQe9JiBMHyRWXArAaKv",
}


def request(api: Api, network: str = "BASE", amount: object = 10_000_000) -> dict[str, Any]:
    account = api.account(api.customer()["id"], "USDC")
    return {
        "internalAccountId": account["id"],
        "currency": "USDC",
        "cryptoNetwork": network,
        "amount": amount,
        "destinationAddress": ADDRESSES.get(network, "x"),
    }


def test_both_fees_are_charged_in_the_currency_that_is_withdrawn(api: Api) -> None:
    fee = ok(api.post(PATH, request(api)))

    assert fee == {
        "networkFee": 20_000,
        "networkFeeAsset": "USDC",
        "applicationFee": 10_000,
        "totalFee": 30_000,
        "netAmount": 9_970_000,
    }


@pytest.mark.parametrize("network", ADDRESSES)
@pytest.mark.parametrize("amount", [10_000_001, 2**63 - 1])
def test_the_parts_of_every_estimate_add_up(api: Api, network: str, amount: int) -> None:
    fee = ok(api.post(PATH, request(api, network, amount)))

    assert fee["networkFee"] + fee["applicationFee"] == fee["totalFee"]
    assert fee["netAmount"] + fee["totalFee"] == amount
    # Rounded up: never less than the share.
    assert fee["applicationFee"] == -(-amount * 10 // 10_000)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"amount": 0}, 400, "INVALID_AMOUNT"),
        ({"amount": -1}, 400, "INVALID_AMOUNT"),
        ({"amount": 2**63}, 400, "INVALID_AMOUNT"),
        ({"amount": 20_000}, 400, "INVALID_AMOUNT"),
        ({"amount": 1.5}, 400, "INVALID_INPUT"),
        ({"currency": "BTC"}, 400, "INVALID_CURRENCY"),
        ({"cryptoNetwork": "BITCOIN"}, 400, "INVALID_INPUT"),
        ({"cryptoNetwork": "DOGE"}, 400, "INVALID_INPUT"),
        ({"destinationAddress": "0x5290"}, 400, "INVALID_INPUT"),
        ({"destinationAddress": ""}, 400, "INVALID_INPUT"),
        ({"internalAccountId": f"InternalAccount:{uuid4()}"}, 404, "REFERENCE_NOT_FOUND"),
    ],
)
def test_an_estimate_that_is_not_possible_is_refused(
    api: Api, change: dict[str, Any], status: int, code: str
) -> None:
    refused(api.post(PATH, request(api) | change), status, code)


def test_money_of_a_bank_is_not_withdrawn_to_a_blockchain(api: Api) -> None:
    dollars = api.account(api.customer()["id"])["id"]
    body = request(api) | {"internalAccountId": dollars, "currency": "USD"}

    refused(api.post(PATH, body), 400, "INVALID_CURRENCY")


def test_accounts_of_another_platform_are_not_found(api: Api, other_platform: Api) -> None:
    refused(other_platform.post(PATH, request(api)), 404, "REFERENCE_NOT_FOUND")
