"""What the names of rates, receivers and quotes mean: a part of `glossary.DESCRIPTIONS`."""

from collections.abc import Mapping
from typing import Final

EXCHANGE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "destinationCurrency": "Currency that is received; in a query, perhaps several.",
    "ExchangeRate.destinationCurrency": "Currency that is received.",
    "destinationPaymentRail": "Payment rail, or network of wallets, of what is received.",
    "minSendingAmount": "Least amount to send, in minor units.",
    "maxSendingAmount": "Largest amount to send, in minor units.",
    "sendingAmount": "Amount that is sent, fees included, in minor units.",
    "receivingAmount": "Amount that is received, in minor units.",
    "exchangeRate": "Minor units sent for one minor unit received.",
    "fees": "Fees, in minor units of the currency that is sent.",
    "ExchangeRateFees.fixed": "Fixed part.",
    "ExchangeRateFees.total": "Fixed and variable part.",
    "allowListStatus": "Whether payments to the provider are allowed.",
    "countryCode": "Country (ISO 3166-1 alpha-2).",
    "domain": "Domain of the UMA addresses.",
    "hasBlockedProviders": "Whether to list providers to which payments are not allowed, too.",
    "lei": "Legal entity identifier (ISO 17442).",
    "supportedRegions": "Countries (ISO 3166-1 alpha-2).",
    "vaspName": "Name of the provider of wallets.",
}
