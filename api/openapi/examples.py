"""Examples for the document: written for the main models, made of their fields for the others."""

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


_PARKED: Final = {
    "type": "CLEARING_REVERSAL",
    "source": "visa-clearing",
    "reference": "c-2",
    "cardId": f"Card:{_ID}",
    "issuerTransactionToken": "hotel-4711",
}

EXAMPLES: Final[Mapping[str, Any]] = {
    "ParkedEvent": {
        "id": f"ParkedEvent:{_OTHER_ID}",
        **_PARKED,
        "event": {**_PARKED, "amount": 1000, "currency": "USD"},
        "createdAt": _TIME,
    },
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
    "Settlement": {
        "network": "VISA",
        "settlementDate": "2026-02-02",
        "cycle": "1",
        "acquirerReference": "74537606033123456789012",
        "networkReference": "386033501234567",
        "interchange": "0.2315",
        "feeProgram": "CPS/Retail",
    },
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
        "remittanceInformation": "Rent of May",
    },
    "TransferOutCreate": {
        "source": {"accountId": f"InternalAccount:{_ID}"},
        "destination": {"accountId": f"ExternalAccount:{_OTHER_ID}", "paymentRail": "ACH"},
        "amount": 5000,
        "remittanceInformation": "Invoice 4711",
        "purposeOfPayment": "GOODS_OR_SERVICES",
    },
    "TransferInCreate": {
        "source": {"accountId": f"ExternalAccount:{_OTHER_ID}"},
        "destination": {"accountId": f"InternalAccount:{_ID}"},
        "amount": 5000,
    },
    "WithdrawalFeeRequest": {
        "internalAccountId": f"InternalAccount:{_ID}",
        "currency": "USDC",
        "cryptoNetwork": "BASE",
        "amount": 10_000_000,
        "destinationAddress": "0x52908400098527886E0F7030069857D2E4169EE7",
    },
    "CancelRequest": {"reason": "Wrong amount"},
    "ConfirmRequest": {"receiptDeliveryConfirmedAt": _TIME},
    "BeneficialOwnerCreate": {
        "customerId": f"Customer:{_ID}",
        "roles": ["UBO", "DIRECTOR"],
        "ownershipPercentage": 33.33,
        "personalInfo": _PERSON,
    },
    "BeneficialOwnerUpdate": {"ownershipPercentage": 25},
    "PersonalInfo": _PERSON,
    "ExternalAccountVerify": {"amounts": [12, 34]},
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
    "RejectRequest": {"reason": "Unknown supplier"},
    "SimulateAuthorization": {
        "amount": 1250,
        "currency": {"code": "USD"},
        "merchant": _MERCHANT,
    },
    "SimulateClearing": {"cardTransactionId": f"CardTransaction:{_ID}", "amount": 1500},
    "SimulateInquiry": {"merchant": _MERCHANT},
    "Card": {
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
    "CardTransaction": {
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
    "IndividualCustomer": {
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
    "InternalAccount": {
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
    "OutgoingTransaction": {
        "type": "OUTGOING",
        "id": f"Transaction:{_ID}",
        "status": "COMPLETED",
        "direction": "DEBIT",
        "source": {"sourceType": "ACCOUNT", "accountId": f"InternalAccount:{_ID}"},
        "destination": {
            "destinationType": "ACCOUNT",
            "accountId": f"ExternalAccount:{_OTHER_ID}",
            "currency": "USD",
        },
        "customerId": f"Customer:{_ID}",
        "platformCustomerId": "customer-4711",
        "sentAmount": _usd(5000),
        "receivedAmount": _usd(5000),
        "fees": 0,
        "remittanceInformation": "Invoice 4711",
        "purposeOfPayment": "GOODS_OR_SERVICES",
        "paymentRail": "ACH",
        "railSelectionMode": "MANUAL",
        "expectedSettlementAt": "2026-02-02T12:00:00.000000Z",
        "settlementTimelineSeconds": 172_800,
        "settledAt": _TIME,
        "createdAt": _TIME,
        "updatedAt": _TIME,
    },
    "IncomingTransaction": {
        "type": "INCOMING",
        "id": f"Transaction:{_ID}",
        "status": "COMPLETED",
        "direction": "CREDIT",
        "source": {
            "sourceType": "ACCOUNT",
            "accountId": f"ExternalAccount:{_OTHER_ID}",
            "currency": "USD",
        },
        "destination": {
            "destinationType": "ACCOUNT",
            "accountId": f"InternalAccount:{_ID}",
            "currency": "USD",
        },
        "customerId": f"Customer:{_ID}",
        "platformCustomerId": "customer-4711",
        "receivedAmount": _usd(5000),
        "settledAt": _TIME,
        "createdAt": _TIME,
        "updatedAt": _TIME,
    },
    "ExternalAccount": {
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
"""Examples of models by public name; any other model has one made of its fields."""

_TEXTS: Final[Mapping[str, str]] = {
    "acceptanceMethod": "CHECKBOX",
    "accessToken": "cl_agent_VGhpcyBpcyBhbiBleGFtcGxl",
    "accountHolderName": "Ada Lovelace",
    "accountIdentifier": "12345678901",
    "accountNumber": "12345678901",
    "address": "0x52908400098527886E0F7030069857D2E4169EE7",
    "agentName": "Bookkeeper",
    "allowedAddresses": "203.0.113.0/24",
    "appName": "Ada Pay",
    "bankCode": "001",
    "bankIdentifier": "021000021",
    "bankName": "First Bank",
    "birthDate": "1990-12-10",
    "body": "Your code is 123456.",
    "bodyText": "Your code is {code}.",
    "bolt12": "lno1pgx9getnwss8vetrw3hhyuckyypwa3eyt44h6txtxquqh7lz5djge4afgfjn7k4rgrkuag0jsd5xvxg",
    "brand": "VISA",
    "branchCode": "00123",
    "city": "San Francisco",
    "clabeNumber": "032180000118359719",
    "clientId": "cl_019542f5b3e77d02",
    "clientSecret": "VGhpcyBpcyBhbiBleGFtcGxl",
    "code": "BCDFG-HJKLM-NPQRS",
    "correlationId": "ada-1",
    "country": "US",
    "countryOfIssuance": "US",
    "countryOfResidence": "US",
    "currency": "USD",
    "currencyCode": "USD",
    "receivingCurrencyCode": "USD",
    "inviterUma": "$ada@bank.example",
    "inviteeUma": "$bob@wallet.example",
    "cursor": "MDE5NTQyZjUtYjNlNy03ZDAy",
    "description": "Rent of May",
    "destinationAddress": "0x52908400098527886E0F7030069857D2E4169EE7",
    "descriptor": "BLUE BOTTLE COFFEE",
    "rate": "1.0873",
    "displayName": "Ada Pay",
    "documentHolder": f"Customer:{_ID}",
    "documentNumber": "1020304050",
    "doingBusinessAs": "Engines",
    "email": "ada@example.com",
    "endToEndId": "E2E-4711",
    "error": "connection refused",
    "explanation": "12.50 USD was authorized.",
    "failureReason": "INSUFFICIENT_FUNDS",
    "fiToFiInformation": "/ACC/Branch 12",
    "field": "address",
    "file": "(the bytes of the file)",
    "fileName": "passport.pdf",
    "firstName": "Ada",
    "fromAddress": "cards@example.com",
    "fromName": "Ada Pay",
    "fullName": "Ada Lovelace",
    "identifier": "123-45-6789",
    "incorporatedOn": "2018-03-14",
    "intermediaryBankName": "Second Bank",
    "invoice": "lnbc12500n1pexample",
    "ipAddress": "198.51.100.7",
    "issuerRef": "iss_019542f5",
    "issuerTransactionToken": "2f3c8a52-5a0b-4c3d-9a54-0d6d0c6a8f11",
    "issuingAuthority": "Department of State",
    "kycUrl": "https://cardledger.example/embed/kyc/VGhpcyBpcyBhbiBleGFtcGxl",
    "redirectUri": "https://example.com/verified",
    "last4": "4242",
    "lastName": "Lovelace",
    "legalName": "Analytical Engines Inc.",
    "lightningAddress": "ada@wallet.example",
    "line1": "1 Market Street",
    "line2": "Suite 400",
    "logoUrl": "https://example.com/logo.png",
    "mcc": "5814",
    "message": "must match ^[0-9]{4}$",
    "middleName": "King",
    "monthlyResetMonth": "2026-01",
    "naicsCode": "522320",
    "name": "Ada Pay",
    "nationality": "US",
    "networkFeeAsset": "USDC",
    "nextCursor": "MDE5NTQyZjUtYjNlNy03ZDAy",
    "panEmbedUrl": "https://api.example.com/embed/cards/kept-secret",
    "phoneNumber": "+14155550123",
    "pixKey": "ada@example.com",
    "platformAccountId": "account-4711",
    "platformCardId": "card-4711",
    "platformCustomerId": "customer-4711",
    "postalCode": "94105",
    "primaryContactFirstName": "Ada",
    "primaryContactLastName": "Lovelace",
    "processorRef": "prc_019542f5",
    "provider": "M-Pesa",
    "publicKey": "-----BEGIN PUBLIC KEY-----\n…\n-----END PUBLIC KEY-----\n",
    "purposeOfAccountOtherDescription": "Savings for a house",
    "reason": "Unknown supplier",
    "reference": "2026-01-31-000042",
    "detail": "Currency must be USD, the currency of the card.",
    "event": '{"type":"CLEARING","source":"visa-clearing","reference":"2026-01-31-000042"}',
    "region": "US",
    "registrationNumber": "HRB 12345",
    "rejectionReason": "Unknown supplier",
    "remittanceInformation": "Rent of May",
    "replyToAddress": "support@example.com",
    "replyToEmailAddress": "support@example.com",
    "resourceId": f"Customer:{_ID}",
    "responseBody": "ok",
    "responseHead": "ok",
    "response_body": "ok",
    "secret": "whsec_VGhpcyBpcyBhbiBleGFtcGxl",
    "sendFromEmailAddress": "codes@example.com",
    "sendFromEmailSenderName": "Ada Pay",
    "sortCode": "200000",
    "source": "visa-clearing",
    "sourceCurrency": "USD",
    "sourceOfFunds": "Sales",
    "sourceOfFundsOtherDescription": "Lottery",
    "sourceOfWealthOtherDescription": "Lottery",
    "state": "CA",
    "subject": "Your code",
    "subjectId": f"CardTransaction:{_ID}",
    "swiftCode": "DEUTDEFF",
    "symbol": "$",
    "taxId": "12-3456789",
    "templateSid": "HX0123456789",
    "termsVersion": "2026-01",
    "traceNumber": "021000020000042",
    "transactionHash": "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060",
    "umaAddress": "$ada@cardledger.example",
    "umaDomain": "cardledger.example",
    "url": "https://example.com/webhooks",
    "webhookEndpoint": "https://example.com/webhooks",
    "webhookPublicKey": "-----BEGIN PUBLIC KEY-----\n…\n-----END PUBLIC KEY-----\n",
}
"""Values of text fields by name."""

_BY_MODEL: Final[Mapping[tuple[str, str], Any]] = {
    ("CardTransactionChange", "field"): "settledAmount",
    ("CardTransactionChange", "before"): 0,
    ("CardTransactionChange", "after"): 1500,
    ("CurrencyInfo", "code"): "USD",
    ("UmaInvitation", "code"): "8J3KQ2M9T4XWZ70B",
    ("UmaInvitation", "url"): "https://cardledger.example/embed/invitations/8J3KQ2M9T4XWZ70B",
    ("CurrencyCode", "code"): "USD",
    ("CurrencyInfo", "name"): "United States Dollar",
    ("CurrencyCode", "name"): "United States Dollar",
    ("RequestedField", "name"): "FULL_NAME",
    ("Token", "name"): "backend",
    ("WebhookEndpoint", "description"): "Bookkeeping",
    ("WebhookEndpointDisabled", "description"): "Bookkeeping",
    ("BusinessBeneficiary", "taxId"): "123456789",
}
"""Values of fields whose name has another meaning in one model."""

_LISTS: Final[Mapping[str, list[str]]] = {
    "acceptedDocumentTypes": ["PASSPORT"],
    "countriesOfOperation": ["US"],
    "currencies": ["USD"],
    "eventTypes": ["CARD_TRANSACTION.*"],
    "expectedCounterpartyCountries": ["US", "MX"],
    "expectedRecipientJurisdictions": ["US", "MX"],
    "providerRequiredCounterpartyCustomerFields": ["FULL_NAME"],
    "providerRequiredCustomerFields": ["BIRTH_DATE"],
}
"""Values of lists of text by name."""

_NUMBERS: Final[Mapping[str, int]] = {
    "amount": 1250,
    "applicationFee": 10_000,
    "netAmount": 9_970_000,
    "networkFee": 20_000,
    "totalFee": 30_000,
    "totalAmount": 1250,
    "count": 1,
    "totalCount": 1,
    "attempts": 1,
    "attemptsLeft": 5,
    "dailyLimit": 200_000,
    "dailySpend": 1250,
    "dailyTransactionCount": 1,
    "dailyTransactionLimit": 20,
    "decimals": 2,
    "failed": 0,
    "processed": 2,
    "successful": 2,
    "total": 2,
    "durationMs": 87,
    "expMonth": 12,
    "expYear": 2029,
    "expirationSeconds": 300,
    "lastStatus": 200,
    "maxAmount": 1_000_000,
    "maxSpendPerTransaction": 100_000,
    "minAmount": 100,
    "monthlyLimit": 1_000_000,
    "monthlySpend": 1250,
    "number": 1,
    "otpLength": 6,
    "overlapHours": 24,
    "perTransactionLimit": 50_000,
    "responseStatus": 200,
    "response_status": 200,
    "sequence": 4,
    "settlementTimelineSeconds": 172_800,
    "status": 200,
    "variableFeeBps": 50,
}
_FLAGS: Final = frozenset({"approved", "delivered", "final", "isConnected", "mandatory"})


def example_of(schema: Json, schemas: Mapping[str, Json], name: str = "", model: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return a value that `schema`, of the field `name` of `model`, allows.

    Raises: LookupError for a text without an example, which belongs into this module.
    """
    if "$ref" in schema:
        target = schema["$ref"].rpartition("/")[2]
        return (
            EXAMPLES[target] if target in EXAMPLES else example_of(schemas[target], schemas, name)
        )
    if (model, name) in _BY_MODEL:
        return _BY_MODEL[model, name]
    for options in ("examples", "enum"):
        if schema.get(options):
            return schema[options][0]
    if "const" in schema:
        return schema["const"]
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return example_of(schema[union][0], schemas, name, model)
    if "items" in schema:
        own = _LISTS.get(name)
        return [example_of(schema["items"], schemas, name, model)] if own is None else own
    if "properties" in schema:
        title = schema.get("title", "")
        return {
            key: example_of(part, schemas, key, title) for key, part in schema["properties"].items()
        }
    return _plain(schema, name)


def _plain(schema: Json, name: str) -> Any:  # noqa: ANN401 - JSON
    match schema.get("type"):
        case "integer" | "number":
            return max(_NUMBERS.get(name, 0), _least(schema))
        case "boolean":
            return name in _FLAGS
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
    formats = {"date-time": _TIME, "date": "2026-01-31"}
    if schema.get("format") in formats:
        return formats[schema["format"]]
    text = _TEXTS.get(name)
    if text is None:
        message = f"no example for {name!r}: {schema}"
        raise LookupError(message)
    return text
