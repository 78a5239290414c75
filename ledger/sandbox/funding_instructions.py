"""The sandbox's ways to pay a quote from outside: accounts that exist at no bank.

`POST /sandbox/send` plays the payment.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from cardledger.ledger.ports import FundingInstructions

_BANKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "USD": {
        "accountType": "USD_ACCOUNT",
        "accountNumber": "1000200030",
        "routingNumber": "123456789",
        "bankName": "First Sandbox Bank",
        "paymentRails": ["RTP", "FEDNOW"],
    },
    "EUR": {
        "accountType": "EUR_ACCOUNT",
        "iban": "DE00100200300040005000",
        "bankName": "Rheinbank",
        "paymentRails": ["SEPA_INSTANT"],
    },
    "GBP": {
        "accountType": "GBP_ACCOUNT",
        "sortCode": "200000",
        "accountNumber": "10002000",
        "bankName": "Thames Bank",
        "paymentRails": ["FASTER_PAYMENTS"],
    },
    "MXN": {
        "accountType": "MXN_ACCOUNT",
        "clabeNumber": "100200300040005000",
        "bankName": "Banco Agave",
        "paymentRails": ["SPEI"],
    },
    "INR": {"accountType": "INR_ACCOUNT", "vpa": "quotes@sandbox", "paymentRails": ["UPI"]},
    "BRL": {
        "accountType": "BRL_ACCOUNT",
        "pixKey": "quotes@sandbox.example",
        "pixKeyType": "EMAIL",
        "paymentRails": ["PIX"],
    },
}

_WALLETS: Final[Mapping[str, Mapping[str, str]]] = {
    "BTC": {"SPARK": "SPARK_WALLET", "BITCOIN_LIGHTNING": "LIGHTNING"},
    "USDB": {"SPARK": "SPARK_WALLET"},
    "USDC": {
        "SOLANA_MAINNET": "SOLANA_WALLET",
        "SOLANA_DEVNET": "SOLANA_WALLET",
        "ETHEREUM_MAINNET": "ETHEREUM_WALLET",
        "BASE_MAINNET": "BASE_WALLET",
        "POLYGON_MAINNET": "POLYGON_WALLET",
        "TRON_MAINNET": "TRON_WALLET",
        "SPARK": "SPARK_WALLET",
    },
}

_NOTES: Final = (
    "Send exactly the amount of the quote, with the reference, before the quote expires."
)


class SandboxFundingInstructions(FundingInstructions):
    """Has an account for each currency with an instant rail, and a wallet for each network."""

    @override
    def for_quote(
        self, currency: str, network: str | None, reference: str
    ) -> Sequence[Mapping[str, Any]] | None:
        account = _BANKS.get(currency)
        if network is not None:
            kind = _WALLETS.get(currency, {}).get(network)
            wallet = {"assetType": currency, "address": f"sandbox-{reference.lower()}"}
            account = None if kind is None else {"accountType": kind, **wallet}
        if account is None:
            return None
        info = {**account, "reference": reference}
        return [{"accountOrWalletInfo": info, "instructionsNotes": _NOTES}]
