"""The table of error codes: the HTTP status, the meaning, and how to reproduce each code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cardledger.schema.wire.errors import Code


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """The HTTP status and the meaning of a code; `how` is a way to reproduce the code.

    Without `how` the code is reserved: its area is not implemented.
    """

    status: int
    meaning: str
    how: str | None = None

    @property
    def is_returned(self) -> bool:
        """Whether this installation returns the code."""
        return self.how is not None


ERROR_SPECS: Final[Mapping[Code, ErrorSpec]] = {
    Code.INVALID_INPUT: ErrorSpec(
        400,
        "The request is invalid; `details.errors` has the fields to change.",
        "send an unknown field, or `limit=0` to any list",
    ),
    Code.MISSING_MANDATORY_USER_INFO: ErrorSpec(
        400,
        "A customer of this region requires more contact details.",
        "create a customer with `region` `DE`, without `email` and `phoneNumber`",
    ),
    Code.INVITATION_ALREADY_CLAIMED: ErrorSpec(
        400, "The invitation is already claimed.", "claim an invitation twice"
    ),
    Code.INVITATIONS_NOT_CONFIGURED: ErrorSpec(
        400,
        "Invitations are not configured: no UMA network is connected.",
        "create an invitation outside a sandbox",
    ),
    Code.INVALID_UMA_ADDRESS: ErrorSpec(
        400,
        "The UMA address is not of the form `$name@domain`, or not in the platform's `umaDomain`.",
        "create a customer with `umaAddress` `ada`",
    ),
    Code.INVITATION_CANCELLED: ErrorSpec(
        400, "The invitation was cancelled.", "claim an invitation after its `cancel`"
    ),
    Code.QUOTE_REQUEST_FAILED: ErrorSpec(
        400,
        "The quote could not be obtained, because there is no rate now; retry.",
        "set the rates from USD to EUR and to USDC to 1e-9 and 1e9, then quote EUR to USDC",
    ),
    Code.INVALID_PAYREQ_RESPONSE: ErrorSpec(400, "The counterparty's payreq response is invalid."),
    Code.INVALID_RECEIVER: ErrorSpec(400, "The receiver cannot be paid."),
    Code.PARSE_PAYREQ_RESPONSE_ERROR: ErrorSpec(
        400, "The counterparty's payreq response cannot be parsed."
    ),
    Code.CERT_CHAIN_INVALID: ErrorSpec(400, "The counterparty's certificate chain is invalid."),
    Code.CERT_CHAIN_EXPIRED: ErrorSpec(400, "The counterparty's certificate chain has expired."),
    Code.INVALID_PUBKEY_FORMAT: ErrorSpec(400, "The counterparty's public key cannot be parsed."),
    Code.MISSING_REQUIRED_UMA_PARAMETERS: ErrorSpec(
        400,
        "The receiver's institution asks for more about the sender; see `senderCustomerInfo`.",
        "quote a payment to `$asks.usd@sandbox.uma.money` without `senderCustomerInfo`",
    ),
    Code.SENDER_NOT_ACCEPTED: ErrorSpec(
        400, "The receiver does not accept payments from this sender."
    ),
    Code.AMOUNT_OUT_OF_RANGE: ErrorSpec(
        400,
        "A total would exceed the range of a 64-bit integer.",
        "put 9223372036854775807 on a card with `simulate/financial_credit_authorization`, then "
        "fund its account",
    ),
    Code.INVALID_CURRENCY: ErrorSpec(
        400,
        "The currency is unknown or differs from the account's.",
        "simulate an authorization in ZZZ, which has no rate to the currency of the card",
    ),
    Code.INVALID_TIMESTAMP: ErrorSpec(400, "The timestamp of a counterparty's request is invalid."),
    Code.INVALID_NONCE: ErrorSpec(400, "The nonce of a counterparty's request was already used."),
    Code.INVALID_REQUEST_FORMAT: ErrorSpec(400, "A counterparty's request cannot be parsed."),
    Code.INVALID_BANK_ACCOUNT: ErrorSpec(
        400,
        "The account number has a wrong form or check digit, or the account does not exist.",
        "register an external account in a sandbox with the IBAN `DE89370400440532013105`",
    ),
    Code.SELF_PAYMENT: ErrorSpec(
        400,
        "Source and destination are the same account.",
        "let an agent transfer from an internal account to itself",
    ),
    Code.LOOKUP_REQUEST_FAILED: ErrorSpec(400, "The look-up of the counterparty failed."),
    Code.PARSE_LNURLP_RESPONSE_ERROR: ErrorSpec(
        400, "The counterparty's lnurlp response cannot be parsed."
    ),
    Code.INVALID_AMOUNT: ErrorSpec(
        400,
        "The amount is missing, not positive, or more than the source can spend.",
        "let an agent request a transfer without `amount`",
    ),
    Code.WEBHOOK_ENDPOINT_NOT_SET: ErrorSpec(
        400,
        "The platform has no `webhookEndpoint`.",
        "`POST /sandbox/webhooks/test` while `webhookEndpoint` is null",
    ),
    Code.WEBHOOK_DELIVERY_ERROR: ErrorSpec(
        400,
        "The test webhook could not be delivered.",
        "set `webhookEndpoint` to a port that is closed, then `POST /sandbox/webhooks/test`",
    ),
    Code.LOW_QUALITY: ErrorSpec(
        400,
        "The document is not legible.",
        "upload an image of 100 by 100 pixels, or a `documentNumber` that ends in `201`",
    ),
    Code.DATA_MISMATCH: ErrorSpec(
        400,
        "The document does not match the customer's data.",
        "upload a document whose `documentNumber` ends in `202`",
    ),
    Code.EXPIRED: ErrorSpec(
        400,
        "The document has expired.",
        "upload a document whose `documentNumber` ends in `203`",
    ),
    Code.SUSPECTED_FRAUD: ErrorSpec(
        400,
        "The document may not be genuine.",
        "upload a document whose `documentNumber` ends in `204`",
    ),
    Code.UNSUITABLE_DOCUMENT: ErrorSpec(
        400,
        "The document is not of an accepted type.",
        "upload a program named `passport.pdf`, or a `documentNumber` that ends in `205`",
    ),
    Code.INCOMPLETE: ErrorSpec(
        400,
        "Parts of the document are missing.",
        "upload the first half of a PDF, or a `documentNumber` that ends in `206`",
    ),
    Code.EMAIL_OTP_CREDENTIAL_ALREADY_EXISTS: ErrorSpec(
        400, "The internal account already has an e-mail credential."
    ),
    Code.SMS_OTP_CREDENTIAL_ALREADY_EXISTS: ErrorSpec(
        400, "The internal account already has an SMS credential."
    ),
    Code.PASSKEY_CREDENTIAL_ALREADY_EXISTS: ErrorSpec(400, "The passkey is already registered."),
    Code.STABLECOIN_PROVIDER_ACCOUNT_INVALID: ErrorSpec(400, "The provider rejects the account."),
    Code.STABLECOIN_PROVIDER_ACCOUNT_REVOKED: ErrorSpec(400, "The provider account was revoked."),
    Code.STABLECOIN_PROVIDER_ACCOUNT_SELECTION_REQUIRED: ErrorSpec(
        400, "There are several provider accounts; send `stablecoinProviderAccountId`."
    ),
    Code.CARDHOLDER_KYC_NOT_APPROVED: ErrorSpec(
        400,
        "The cardholder's `kycStatus`, or a business's `kybStatus`, is not `APPROVED`.",
        "issue a card to a customer whose `fullName` ends in `001`",
    ),
    Code.FUNDING_SOURCE_INELIGIBLE: ErrorSpec(
        400,
        "A funding source is not the cardholder's, not active or not fiat.",
        "issue a card with another customer's internal account in `fundingSources`",
    ),
    Code.EXTERNAL_ACCOUNT_VERIFICATION_REQUIRED: ErrorSpec(
        400,
        "The external account is not verified yet.",
        "transfer to an external account whose number ends in `108`",
    ),
    Code.UNAUTHORIZED: ErrorSpec(
        401,
        "The credentials are missing, malformed, unknown or of another scheme.",
        "call without the header `Authorization`",
    ),
    Code.INVALID_SIGNATURE: ErrorSpec(401, "The counterparty's signature is invalid."),
    Code.WALLET_SIGNATURE_MISSING: ErrorSpec(401, "The wallet signature is missing."),
    Code.WALLET_SIGNATURE_MALFORMED: ErrorSpec(401, "The wallet signature cannot be parsed."),
    Code.WALLET_SIGNATURE_BODY_MISMATCH: ErrorSpec(
        401, "The wallet signature belongs to a different body."
    ),
    Code.WALLET_SIGNATURE_INVALID: ErrorSpec(401, "The wallet signature is invalid."),
    Code.REQUEST_ID_MISSING: ErrorSpec(
        401, "The signed retry lacks the id of the original request."
    ),
    Code.FORBIDDEN: ErrorSpec(
        403,
        "The token lacks the permission, or would grant one that it lacks; the agent's policy or"
        " pause forbids the operation; or a page of another site sent the request.",
        "create a customer with a token that has only `VIEW`",
    ),
    Code.USER_NOT_READY: ErrorSpec(
        403,
        "The customer's identity is not approved, so no payment leaves or enters its accounts.",
        "transfer to a bank for a customer whose `fullName` ends in `001`",
    ),
    Code.COUNTERPARTY_NOT_ALLOWED: ErrorSpec(
        403,
        "Payments to this counterparty are not allowed.",
        "look up the receiver `$ada@blocked.example`",
    ),
    Code.VELOCITY_LIMIT_EXCEEDED: ErrorSpec(403, "The payment exceeds a velocity limit."),
    Code.TRANSACTION_NOT_FOUND: ErrorSpec(
        404,
        "The transaction does not exist.",
        "read `/transactions/CardTransaction:` and a new UUID",
    ),
    Code.INVITATION_NOT_FOUND: ErrorSpec(
        404, "The invitation does not exist.", "read `/invitations/` and any other code"
    ),
    Code.USER_NOT_FOUND: ErrorSpec(
        404,
        "The customer does not exist.",
        "read `/customers/Customer:` and a new UUID",
    ),
    Code.QUOTE_NOT_FOUND: ErrorSpec(
        404, "The quote does not exist.", "read `/quotes/Quote:` and a new UUID"
    ),
    Code.LOOKUP_REQUEST_NOT_FOUND: ErrorSpec(
        404,
        "The look-up does not exist, is of another receiver, or is too old.",
        "create a quote for a UMA address with `lookupId` `Lookup:` and a new UUID",
    ),
    Code.TOKEN_NOT_FOUND: ErrorSpec(
        404,
        "The token does not exist.",
        "read `/tokens/Token:` and a new UUID",
    ),
    Code.BULK_UPLOAD_JOB_NOT_FOUND: ErrorSpec(
        404,
        "The bulk upload does not exist.",
        "read `/customers/bulk/jobs/Job:` and a new UUID",
    ),
    Code.REFERENCE_NOT_FOUND: ErrorSpec(
        404,
        "The resource or the path does not exist.",
        "read `/cards/Card:` and a new UUID",
    ),
    Code.UMA_NOT_FOUND: ErrorSpec(
        404,
        "The UMA address does not exist.",
        "look up the receiver `$ada@sandbox.uma.money`",
    ),
    Code.STABLECOIN_PROVIDER_ACCOUNT_NOT_FOUND: ErrorSpec(
        404, "The provider account does not exist."
    ),
    Code.METHOD_NOT_ALLOWED: ErrorSpec(
        405,
        "The path does not support the method; the header `Allow` lists those it supports.",
        "`PUT /customers`",
    ),
    Code.TRANSACTION_NOT_PENDING_PLATFORM_APPROVAL: ErrorSpec(
        409,
        "The transaction is not pending the platform's approval.",
        "approve a card transaction",
    ),
    Code.TRANSACTION_NOT_CANCELLABLE: ErrorSpec(
        409,
        "The transaction can no longer be cancelled.",
        "cancel a transfer that is `COMPLETED`",
    ),
    Code.UMA_ADDRESS_EXISTS: ErrorSpec(
        409,
        "Another customer has this UMA address.",
        "create two customers with one `umaAddress`",
    ),
    Code.EMAIL_OTP_EMAIL_ALREADY_EXISTS: ErrorSpec(
        409, "The e-mail address belongs to another credential."
    ),
    Code.EMAIL_OTP_CREDENTIAL_SET_CHANGED: ErrorSpec(
        409, "The credentials have changed since the challenge."
    ),
    Code.PASSKEY_ALREADY_ENROLLED: ErrorSpec(
        409,
        "The customer already has a passkey; delete it before enrolling another.",
        "enrol a passkey of a customer with `region` `DE` twice",
    ),
    Code.CONFLICT: ErrorSpec(
        409,
        "The request conflicts with the current state, such as a `platformCustomerId` that is "
        "taken, or an `Idempotency-Key` of a different request.",
        "create two customers with one `platformCustomerId`",
    ),
    Code.INVALID_STATE_TRANSITION: ErrorSpec(
        409,
        "The card cannot change from its current state to the requested one.",
        "freeze a card that is still `PROCESSING`",
    ),
    Code.CARD_ALREADY_CLOSED: ErrorSpec(
        409,
        "The card is already closed.",
        "close a card twice",
    ),
    Code.CARD_NOT_MUTABLE: ErrorSpec(
        409,
        "A closed card cannot be changed.",
        "set `maxSpendPerTransaction` of a closed card",
    ),
    Code.SCA_SESSION_REQUIRED: ErrorSpec(
        409,
        "The customer has to authenticate the payment.",
        "transfer to an external account that is not trusted, for a customer of region `DE`",
    ),
    Code.CUSTOMER_DELETED: ErrorSpec(
        410,
        "The customer is already deleted.",
        "delete a customer twice",
    ),
    Code.UNSUPPORTED_UMA_VERSION: ErrorSpec(
        412,
        "The counterparty's version of UMA is not supported.",
        "look up the receiver `$fail.version.usd@sandbox.uma.money`",
    ),
    Code.ACCOUNT_LOCKED: ErrorSpec(
        423,
        "The customer is locked after too many wrong one-time codes; `details.lockedUntil`.",
        "record six `FAILED_LOGIN_ATTEMPT` events of a customer with `region` `DE`",
    ),
    Code.PAYREQ_REQUEST_FAILED: ErrorSpec(
        424,
        "The payreq request to the counterparty failed.",
        "quote a payment to `$fail.payreq.usd@sandbox.uma.money`",
    ),
    Code.COUNTERPARTY_PUBKEY_FETCH_ERROR: ErrorSpec(
        424,
        "The counterparty's public keys could not be fetched.",
        "look up the receiver `$fail.keys.usd@sandbox.uma.money`",
    ),
    Code.NO_COMPATIBLE_UMA_VERSION: ErrorSpec(
        424,
        "There is no version of UMA that both sides support.",
        "look up the receiver `$fail.negotiation.usd@sandbox.uma.money`",
    ),
    Code.LNURLP_REQUEST_FAILED: ErrorSpec(
        424,
        "The lnurlp request to the counterparty failed.",
        "look up the receiver `$fail.lookup.usd@sandbox.uma.money`",
    ),
    Code.EMAIL_OTP_CREDENTIAL_SYNC_FAILED: ErrorSpec(
        424, "The credential could not be updated with the new e-mail address."
    ),
    Code.RATE_LIMITED: ErrorSpec(
        429,
        "Too many requests; wait for `Retry-After` seconds.",
        "call faster than the rate limit allows, or have too many requests in progress",
    ),
    Code.GRID_SWITCH_ERROR: ErrorSpec(500, "The payment switch failed."),
    Code.INTERNAL_ERROR: ErrorSpec(
        500,
        "Internal error; the request was not the cause.",
        "no request provokes it: each one is a defect; the tests break the database under the "
        "service",
    ),
    Code.NOT_IMPLEMENTED: ErrorSpec(
        501,
        "This operation, or this part of it, is not implemented in this installation.",
        "`GET /stablecoins`",
    ),
    Code.UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY: ErrorSpec(
        501, "The counterparty requires unknown payee data."
    ),
    Code.SERVICE_UNAVAILABLE: ErrorSpec(
        503,
        "The database is unavailable, or no worker decided in time; retry.",
        "stop PostgreSQL and call any operation",
    ),
}
"""The one table of codes; the documentation and every status are made from it."""

STATUS: Final[Mapping[Code, int]] = {code: spec.status for code, spec in ERROR_SPECS.items()}
"""The HTTP status of every code.

Exceptions: `INVALID_INPUT` also comes with 413 (body too large), 408 (body timed out) and 431
(headers too large), for which the interface has no codes.
"""
