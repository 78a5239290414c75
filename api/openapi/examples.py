"""Examples for the document: written where they tell something, made from the schema elsewhere."""

import re
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

_MERCHANT: Final = {"descriptor": "BLUE BOTTLE COFFEE", "mcc": "5814", "country": "US"}
_TIME: Final = "2026-01-31T12:00:00.000000Z"
_ID: Final = "019542f5-b3e7-7d02-0000-00000000a1b4"
_OTHER_ID: Final = "019542f5-b3e7-7d02-0000-00000000a1b5"
_ADDRESS: Final = {
    "line1": "1 Market Street",
    "city": "San Francisco",
    "state": "CA",
    "postalCode": "94105",
    "country": "US",
}
_USD_ACCOUNT: Final = {
    "accountType": "USD_ACCOUNT",
    "accountNumber": "12345678901",
    "routingNumber": "021000021",
    "bankAccountType": "CHECKING",
    "bankName": "Chase Bank",
    "beneficiary": {
        "beneficiaryType": "INDIVIDUAL",
        "fullName": "Ada Lovelace",
        "birthDate": "1990-12-10",
        "nationality": "US",
        "address": _ADDRESS,
    },
}


_PERSON: Final = {
    "firstName": "Ada",
    "lastName": "Lovelace",
    "birthDate": "1990-12-10",
    "nationality": "US",
    "address": _ADDRESS,
    "idType": "SSN",
    "identifier": "123-45-6789",
}
_POLICY: Final = {
    "permissions": ["VIEW_TRANSACTIONS", "CREATE_TRANSFERS"],
    "defaultExecutionMode": "AUTO",
    "spendingLimits": {"currency": "USD", "perTransactionLimit": 50_000, "dailyLimit": 200_000},
    "approvalThresholds": {"currency": "USD", "amount": 10_000},
}


def _usd(amount: int) -> Json:
    currency = {"code": "USD", "name": "United States Dollar", "symbol": "$", "decimals": 2}
    return {"amount": amount, "currency": currency}


EXAMPLES: Final[Mapping[str, Any]] = {
    "CardCreate": {
        "cardholderId": f"Customer:{_ID}",
        "platformCardId": "card-4711",
        "form": "VIRTUAL",
        "fundingSources": [f"InternalAccount:{_ID}"],
    },
    "CardUpdate": {"state": "FROZEN"},
    "IndividualCreate": {
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "customer-4711",
        "fullName": "Ada Lovelace",
        "birthDate": "1990-12-10",
        "nationality": "US",
        "email": "ada@example.com",
        "address": _ADDRESS,
    },
    "BusinessCreate": {
        "customerType": "BUSINESS",
        "platformCustomerId": "business-4711",
        "businessInfo": {
            "legalName": "Analytical Engines Inc.",
            "taxId": "12-3456789",
            "incorporatedOn": "2018-03-14",
            "country": "US",
            "entityType": "CORPORATION",
        },
    },
    "IndividualUpdate": {"customerType": "INDIVIDUAL", "email": "ada@example.com"},
    "BusinessUpdate": {
        "customerType": "BUSINESS",
        "businessInfo": {"doingBusinessAs": "Engines"},
    },
    "ConfigUpdate": {"webhookEndpoint": "https://example.com/webhooks"},
    "FundRequest": {"amount": 50_000},
    "TokenCreate": {"name": "backend", "permissions": ["VIEW", "TRANSACT"]},
    "ExternalAccountCreate": {
        "customerId": f"Customer:{_ID}",
        "currency": "USD",
        "platformAccountId": "account-4711",
        "accountInfo": _USD_ACCOUNT,
    },
    "PlatformExternalAccountCreate": {"currency": "USD", "accountInfo": _USD_ACCOUNT},
    "AgentCreate": {
        "name": "Bookkeeper",
        "customerId": f"Customer:{_ID}",
        "policy": _POLICY,
    },
    "AgentPolicy": _POLICY,
    "AgentPolicyUpdate": {"spendingLimits": {"dailyLimit": 100_000}},
    "AgentUpdate": {"isPaused": True},
    "AgentTransferCreate": {
        "source": {"accountId": f"InternalAccount:{_ID}"},
        "destination": {"accountId": f"InternalAccount:{_OTHER_ID}"},
        "amount": 1250,
        "remittanceInformation": "rent of May",
    },
    "BeneficialOwnerCreate": {
        "customerId": f"Customer:{_ID}",
        "roles": ["UBO", "DIRECTOR"],
        "ownershipPercentage": 33.33,
        "personalInfo": _PERSON,
    },
    "BeneficialOwnerUpdate": {"ownershipPercentage": 25},
    "PersonalInfo": _PERSON,
    "VerificationCreate": {"customerId": f"Customer:{_ID}"},
    "InternalAccountCreate": {"customerId": f"Customer:{_ID}", "currency": "USD"},
    "WebhookEndpointCreate": {
        "url": "https://example.com/webhooks",
        "description": "Bookkeeping",
        "eventTypes": ["CARD_TRANSACTION.*"],
        "mode": "FIFO",
    },
    "WebhookEndpointUpdate": {"state": "DISABLED"},
    "WebhookReplay": {"since": _TIME, "onlyFailed": True},
    "WebhookTest": {"endpointId": f"WebhookEndpoint:{_ID}"},
    "SigningKeyRotate": {"overlapHours": 24},
    "RejectRequest": {"reason": "not this supplier"},
    "SimulateAuthorization": {
        "amount": 1250,
        "currency": {"code": "USD"},
        "merchant": _MERCHANT,
    },
    "SimulateClearing": {"cardTransactionId": f"CardTransaction:{_ID}", "amount": 1500},
    "SimulateInquiry": {"merchant": _MERCHANT},
    "CardResource": {
        "id": f"Card:{_ID}",
        "cardholderId": f"Customer:{_ID}",
        "platformCardId": "card-4711",
        "state": "ACTIVE",
        "stateReason": None,
        "brand": "VISA",
        "form": "VIRTUAL",
        "last4": "4242",
        "expMonth": 12,
        "expYear": 2029,
        "fundingSources": [f"InternalAccount:{_ID}"],
        "maxSpendPerTransaction": None,
        "currency": "USD",
        "processorRef": "prc_019542f5",
        "issuerRef": "iss_019542f5",
        "createdAt": _TIME,
        "updatedAt": _TIME,
    },
    "CardTransactionResource": {
        "type": "CARD",
        "id": f"CardTransaction:{_ID}",
        "cardId": f"Card:{_ID}",
        "customerId": f"Customer:{_ID}",
        "accountId": f"InternalAccount:{_ID}",
        "issuerTransactionToken": "2f3c8a52-5a0b-4c3d-9a54-0d6d0c6a8f11",
        "status": "SETTLED",
        "direction": "DEBIT",
        "merchant": _MERCHANT,
        "authorizedAmount": _usd(1250),
        "settledAmount": _usd(1500),
        "heldAmount": _usd(0),
        "owedAmount": _usd(0),
        "pullSummary": {"count": 2, "totalAmount": 1500, "pendingCount": 0},
        "settlementSummary": {"count": 1, "totalAmount": 1500},
        "refundSummary": {"count": 0, "totalAmount": 0},
        "releaseSummary": {"count": 0, "totalAmount": 0},
        "sequence": 4,
        "authorizedAt": _TIME,
        "lastEventAt": _TIME,
        "createdAt": _TIME,
        "updatedAt": _TIME,
    },
    "CustomerResource": {
        "id": f"Customer:{_ID}",
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "customer-4711",
        "currencies": ["USD"],
        "email": "ada@example.com",
        "umaAddress": "$ada@cardledger.example",
        "kycStatus": "APPROVED",
        "fullName": "Ada Lovelace",
        "birthDate": "1990-12-10",
        "nationality": "US",
        "address": _ADDRESS,
        "createdAt": _TIME,
        "updatedAt": _TIME,
        "isDeleted": False,
    },
    "InternalAccountResource": {
        "id": f"InternalAccount:{_ID}",
        "customerId": f"Customer:{_ID}",
        "type": "INTERNAL_FIAT",
        "status": "ACTIVE",
        "balance": _usd(48_500),
        "totalBalance": _usd(48_500),
        "heldAmount": _usd(0),
        "owedAmount": _usd(0),
        "fundingPaymentInstructions": [],
        "sequence": 3,
        "createdAt": _TIME,
        "updatedAt": _TIME,
    },
    "ExternalAccountResource": {
        "id": f"ExternalAccount:{_ID}",
        "customerId": f"Customer:{_ID}",
        "status": "ACTIVE",
        "platformAccountId": "account-4711",
        "currency": "USD",
        "defaultUmaDepositAccount": False,
        "beneficiaryVerificationStatus": "MATCHED",
        "beneficiaryVerifiedData": {"fullName": "Ada Lovelace"},
        "accountInfo": {**_USD_ACCOUNT, "paymentRails": ["ACH", "WIRE", "RTP", "FEDNOW"]},
    },
}
"""Examples of models by name; a model that is not here gets one that is made of its fields."""

_NAMED: Final[Mapping[str, str]] = {
    "currency": "USD",
    "code": "USD",
    "currencyCode": "USD",
    "sourceCurrency": "USD",
    "country": "US",
    "nationality": "US",
    "region": "US",
    "countryOfResidence": "US",
    "countryOfIssuance": "US",
    "mcc": "5814",
    "descriptor": "BLUE BOTTLE COFFEE",
    "email": "ada@example.com",
    "phoneNumber": "+14155550123",
    "birthDate": "1990-12-10",
    "incorporatedOn": "2018-03-14",
    "fullName": "Ada Lovelace",
    "legalName": "Analytical Engines Inc.",
    "umaAddress": "$ada@cardledger.example",
    "umaDomain": "cardledger.example",
    "webhookEndpoint": "https://example.com/webhooks",
    "url": "https://example.com/webhooks",
    "panEmbedUrl": "https://api.example.com/embed/cards/kept-secret",
    "symbol": "$",
    "last4": "4242",
    "brand": "VISA",
    "postalCode": "94105",
    "naicsCode": "522320",
}
_NUMBERS: Final[Mapping[str, int]] = {
    "amount": 1250,
    "totalAmount": 1250,
    "count": 1,
    "decimals": 2,
    "expMonth": 12,
    "expYear": 2029,
}


def example_of(schema: Json, schemas: Mapping[str, Json], name: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a value that `schema`, the schema of a field called `name`, lets pass."""
    if "$ref" in schema:
        model = schema["$ref"].rpartition("/")[2]
        return EXAMPLES[model] if model in EXAMPLES else example_of(schemas[model], schemas, name)
    for options in ("examples", "enum"):
        if schema.get(options):
            return schema[options][0]
    if "const" in schema:
        return schema["const"]
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return example_of(schema[union][0], schemas, name)
    if "items" in schema:
        return [example_of(schema["items"], schemas, name)]
    if "properties" in schema:
        return {key: example_of(one, schemas, key) for key, one in schema["properties"].items()}
    return _plain(schema, name)


def _plain(schema: Json, name: str) -> Any:  # noqa: ANN401 - JSON
    match schema.get("type"):
        case "integer" | "number":
            return max(_NUMBERS.get(name, 0), _least(schema))
        case "boolean":
            return name == "hasMore"
        case "string":
            return _text(schema, name)
        case "array":
            return []
        case _:
            return {}


def _least(schema: Json) -> int:
    if "exclusiveMinimum" in schema:
        return int(schema["exclusiveMinimum"]) + 1
    return int(schema.get("minimum", 0))


def _text(schema: Json, name: str) -> str:
    if schema.get("format") == "date-time":
        return _TIME
    if schema.get("format") == "date":
        return "2026-01-31"
    if schema.get("format") == "uri":
        return "https://example.com"
    if name in _NAMED:
        return _NAMED[name]
    pattern = schema.get("pattern", "")
    if pattern == "^[A-Z]{2}$":
        return "US"
    words = re.sub(r"([A-Z])", r" \1", name).lower().strip() or "text"
    return words[: schema.get("maxLength", len(words))]
