"""Contact verification and strong customer authentication (SCA): one-time codes and factors."""

from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints
from typing_extensions import TypeAliasType

from cardledger.schema.wire.common import (
    STORABLE,
    CustomerId,
    Documented,
    Request,
    Response,
    ScaChallengeId,
    ScaResetId,
    Time,
)

Channel = Literal["EMAIL", "PHONE"]
ContactStatus = Literal["PENDING", "VERIFIED"]

Factor = Literal["SMS_OTP", "EMAIL_OTP", "TOTP", "PASSKEY"]
"""`EMAIL_OTP` is for logins, beside the factors of the public interface."""

EnrolledFactor = Literal["TOTP", "PASSKEY"]
"""The factors that are enrolled; the others follow from a verified contact."""

Purpose = Literal["LOGIN", "TRUST", "UNTRUST", "CURRENCY_CONVERSION", "PAYOUT", "TRANSFER"]
"""What an answered challenge authorizes."""

EventType = Literal["RESET_PASSWORD_COMPLETED", "FAILED_LOGIN_ATTEMPT"]
ResetStatus = Literal[
    "INITIATED", "PENDING_REVIEW", "LIVENESS_PASSED", "COMPLETED", "REJECTED", "EXPIRED"
]

MAX_CODE: Final = 64

Code = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=MAX_CODE),
    STORABLE,
    Field(examples=["123456"]),
]
"""A one-time code of six digits, or a recovery code."""

_SECRET: Final = "3132333435363738393031323334353637383930"  # noqa: S105 - an example
_BASE32: Final = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # Both of the test vectors of RFC 6238.

Secret = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=255),
    STORABLE,
    Field(examples=[_SECRET]),
]
Origin = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=255),
    STORABLE,
    Field(examples=["https://bank.example.com"]),
]


def _ip_address(value: str) -> str:
    try:
        return str(ip_address(value))
    except ValueError:
        message = "must be an IPv4 or IPv6 address"
        raise ValueError(message) from None


IpAddress = Annotated[
    str,
    StringConstraints(strict=True, min_length=2, max_length=45),
    AfterValidator(_ip_address),
    Field(examples=["192.0.2.1"]),
]
PasskeyAssertion = TypeAliasType(
    "PasskeyAssertion",
    Annotated[
        dict[str, Any],
        Field(max_length=10, description="What a browser returns of a passkey, as JSON."),
    ],
)


# --- contact verification ----------------------------------------------------------------------


class ContactCode(Request):
    """The code that was sent to an e-mail address or a phone."""

    code: Code


class ContactVerification(Response):
    """Which contacts of a customer are verified; only where verification is required."""

    email: ContactStatus | None = None
    phone: ContactStatus | None = None


# --- strong customer authentication -------------------------------------------------------------


class ScaQuery(Request):
    """The customer whose factors are meant."""

    customer_id: CustomerId


class ScaFactorCreate(Request):
    """The factor to enrol."""

    type: EnrolledFactor


class ScaFactorConfirm(Request):
    """The proof that a factor works: for `TOTP` its secret and a code."""

    type: EnrolledFactor
    secret: Secret | None = None
    code: Code | None = None
    origin: Origin | None = None
    credential: PasskeyAssertion | None = None


class ScaLoginStart(Request):
    """The factor of a login."""

    factor: Factor


class ScaAnswer(Request):
    """The answer to a challenge; without `challengeId`, to the last one."""

    challenge_id: ScaChallengeId | None = None
    code: Code | None = None
    passkey_assertion: PasskeyAssertion | None = None
    origin: Origin | None = None


class ScaLoginComplete(ScaAnswer):
    """The answer of a login."""

    factor: Factor
    end_user_ip_address: IpAddress


class ScaEvent(Request):
    """What happened in the platform's own login."""

    event_type: EventType


class ScaResetCreate(Request):
    """The factor that the customer has lost."""

    factor: Factor


class Mobile(Request):
    """A phone number in two parts, such as `+49` and `15123456789`."""

    country_code: Annotated[
        str,
        StringConstraints(strict=True, pattern=r"^\+[1-9][0-9]{0,3}$"),
        Field(examples=["+49"]),
    ]
    number: Annotated[
        str,
        StringConstraints(strict=True, pattern=r"^[0-9]{1,14}$"),
        Field(examples=["15123456789"]),
    ]


class ScaResetComplete(Request):
    """The end of a reset; `mobile` is the new phone of an `SMS_OTP` factor."""

    mobile: Mobile | None = None


class ScaFactor(Response):
    """A factor that a customer has."""

    factor: Annotated[str, Documented(Factor)]
    credential_id: Annotated[str, Field(examples=["passkey-1"])] | None = None
    name: Annotated[str, Field(examples=["Ada's phone"])] | None = None


class ScaFactors(Response):
    """The factors of a customer."""

    factors: list[ScaFactor]


class TotpEnrolment(Response):
    """The secret of an authenticator application (RFC 6238: SHA-1, six digits, 30 seconds).

    `secret` has its 20 bytes as hexadecimal digits; `totpUri` is for a QR code. A repetition with
    an `Idempotency-Key` does not have them.
    """

    secret: Annotated[str, Field(examples=[_SECRET])] | None = None
    secret_base32_encoded: Annotated[str, Field(examples=[_BASE32])] | None = None
    totp_uri: (
        Annotated[
            str,
            Field(examples=[f"otpauth://totp/Acme:ada%40example.com?secret={_BASE32}&issuer=Acme"]),
        ]
        | None
    ) = None


class PasskeyEnrolment(Response):
    """The options to create a passkey (`PublicKeyCredential.parseCreationOptionsFromJSON`)."""

    options: dict[str, Any]
    allowed_origins: Annotated[list[str], Field(examples=[["https://bank.example.com"]])]
    relying_party_id: Annotated[str, Field(examples=["bank.example.com"])]


class PasskeyConfirmation(Response):
    """The enrolled passkey."""

    factor: ScaFactor


class TotpConfirmation(Response):
    """Recovery codes, each for one login without the authenticator; shown once.

    A repetition with an `Idempotency-Key` does not have them.
    """

    recovery_codes: Annotated[list[str], Field(examples=[["7QK2M-XB9RT"]])] | None = None


class ScaLoginStarted(Response):
    """The started login; a factor with a code that is sent has a challenge, a passkey options."""

    factor: Annotated[str, Documented(Factor)]
    challenge_id: ScaChallengeId | None = None
    expires_at: Time | None = None
    options: dict[str, Any] | None = None
    allowed_origins: Annotated[list[str], Field(examples=[["https://bank.example.com"]])] | None = (
        None
    )


class ScaLogin(Response):
    """The completed login."""

    status: Literal["SUCCESS"]
    session_expires_at: Time


class ScaLock(Response):
    """What a customer's failed attempts have led to."""

    event_type: Annotated[str, Documented(EventType)]
    suspended: bool
    locked_until: Time | None = None
    failed_attempts: int


class ScaResetStarted(Response):
    """A started reset; `verificationLink` where a provider checks that the customer is alive."""

    reset_id: ScaResetId
    verification_link: (
        Annotated[str, Field(examples=["https://verifier.example.com/liveness/1"])] | None
    ) = None
    expires_at: Time


class ScaReset(Response):
    """A reset of a factor; `enrollmentStatus` is that of its replacement."""

    status: ResetStatus
    factor: Annotated[str, Documented(Factor)]
    enrollment_status: Literal["PENDING", "ENROLLED"]
    expires_at: Time
    completed_at: Time | None = None


class ScaChallengeResource(Response):
    """A challenge, which one of `availableFactors` answers; authorizes what `purpose` says."""

    id: ScaChallengeId
    expires_at: Time
    factor: Annotated[str, Documented(Factor)]
    available_factors: Annotated[list[str], Documented(list[Factor])]
    purpose: Annotated[str, Documented(Purpose)] | None = None
    passkey_assertion_options: dict[str, Any] | None = None
    passkey_allowed_origins: (
        Annotated[list[str], Field(examples=[["https://bank.example.com"]])] | None
    ) = None


class TrustStarted(Response):
    """The challenge to answer; none when the account is trusted, or not, already."""

    sca_challenge: ScaChallengeResource | None = None


class Trust(Response):
    """Whether payments of the customer to the account need no challenge."""

    trusted: bool
