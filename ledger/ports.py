"""Ports: what the ledger requires of systems outside of it.

`ledger.sandbox` has the only adapters so far. A composition root (`api.app`, `workers.process`,
tests) connects at most one adapter to each port and passes it to the functions that need it.
Without an adapter an operation raises `NotConnectedError` or leaves its resource PENDING; no
function makes up what the system outside would have answered.

`UmaNetwork`, `FundingInstructions` and `CodeSender` may wait for a system outside: they are called
before a database transaction begins, and after it was committed. The other adapters are called
inside of database transactions, so they compute and do not wait: what takes time at a system
outside is requested and answered by messages (decision 43).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from cardledger.ledger.core.events import DeclineReason
from cardledger.ledger.core.payments.transfer import FailureReason
from cardledger.schema.ids import Id

# Workers import the ports as well, and need none of these models, which take a tenth of a second.
if TYPE_CHECKING:
    from cardledger.schema.wire.customers import external_accounts
    from cardledger.schema.wire.customers.authentication import Channel
    from cardledger.schema.wire.customers.beneficial_owners import BeneficialOwnerResource
    from cardledger.schema.wire.customers.documents import DocumentType, Fault
    from cardledger.schema.wire.customers.external_accounts import AccountInfo
    from cardledger.schema.wire.customers.people import KycStatus
    from cardledger.schema.wire.customers.verifications import (
        VerificationProblem,
        VerificationStatus,
    )


class NotConnectedError(Exception):
    """The operation needs a system outside, and no adapter for it is connected."""

    def __init__(self, port: str) -> None:
        super().__init__(
            f"No {port} is connected to this installation; connect one, or enable the sandbox."
        )
        self.port: Final = port


# --- cards -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCard:
    """What the issuer reports of a card that it has issued."""

    brand: str
    last4: str
    exp_month: int
    exp_year: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CardNumber:
    """Card number and CVV. Without a `repr`, so that no log can show them."""

    pan: str
    cvv: str
    is_test: bool  # The network does not route the number.


class Issuer(Protocol):
    """Issues cards. It answers some time after a card is requested."""

    def default_platform_card_id(self, card_id: Id, cardholder_id: Id) -> str:
        """Return the `platformCardId` of a card for which the platform sent none."""

    def answer_due_at(self, platform_card_id: str, *, requested_at: datetime) -> datetime | None:
        """Return when `issue` can be called for a requested card; None: never."""

    def issue(self, card_id: Id, platform_card_id: str, *, at: datetime) -> IssuedCard | None:
        """Return the issued card, or None when the issuer rejects it."""

    def funding_source_objection(self, account_id: Id) -> str | None:
        """Return why the issuer does not accept a funding source; None: it does."""

    def card_number(self, card_id: Id, last4: str) -> CardNumber:
        """Return number and CVV of an issued card, to be shown to its cardholder."""


# --- customers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A document as a verifier sees it, of the customer or owner `holder`, both as on the wire."""

    id: str
    holder: str
    document_type: "DocumentType"
    document_number: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """A customer to be verified; `fields` by their names on the wire."""

    id: Id
    is_business: bool
    fields: Mapping[str, Any]
    owners: "Sequence[BeneficialOwnerResource]" = ()
    documents: Sequence[Evidence] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """The result of a verification; `problems` only with `RESOLVE_ERRORS`."""

    status: "VerificationStatus"
    problems: "Sequence[VerificationProblem]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The check that a customer is alive and itself; `link` where it has to go for it."""

    status: Literal["INITIATED", "PENDING_REVIEW", "LIVENESS_PASSED", "REJECTED"]
    link: str | None = None


class IdentityVerifier(Protocol):
    """Verifies identities (KYC) and businesses (KYB)."""

    def check_liveness(self, customer_id: Id) -> Liveness:
        """Begin to check that a customer who has lost a factor is alive and itself."""

    def initial_kyc_status(self, full_name: str | None) -> "KycStatus":
        """Return the status of an individual who has just become a customer."""

    def verify(
        self, applicant: Applicant, problems: "Sequence[VerificationProblem]"
    ) -> VerificationResult:
        """Return the result for `applicant`, of which `problems` are known already."""

    def document_fault(self, document_number: str | None) -> "Fault | None":
        """Return what is wrong with a document that is being uploaded; None: it is accepted."""

    def owner_kyc_status(self, last_name: str) -> "KycStatus":
        """Return the status of a beneficial owner whose business has been decided."""


class CodeSender(Protocol):
    """Sends one-time codes to customers by e-mail and SMS.

    It is connected where a payment provider requires verified contacts and strong customer
    authentication; without it no customer needs either.
    """

    def new_code(self) -> str:
        """Return a code of six digits that nothing predicts."""

    def send(self, channel: "Channel", address: str, code: str) -> None:
        """Hand a code over for delivery to an e-mail address or a phone number.

        Its challenge is committed. It is called in a thread, once, and no request waits for it.
        """

    def accepts_as_totp(self, code: str) -> bool:
        """Return whether `code` counts as that of any authenticator: in a sandbox."""


# --- external accounts -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCheck:
    """What a payment rail reports of an external account.

    `objection` says why the account cannot be registered. `name_match` compares the beneficiary
    with the account holder, whose name is `verified_name` where the rail returns it.
    """

    objection: str | None = None
    name_match: "external_accounts.VerificationStatus | None" = None
    verified_name: str | None = None
    requires_challenge: bool = False  # Its owner has to prove that it receives payments.


class AccountVerifier(Protocol):
    """Checks external accounts and the names of their holders with a payment rail."""

    def checks_digits(self) -> bool:
        """Return whether check digits and checksums of identifiers count, beside their forms."""

    def check(self, info: "AccountInfo") -> AccountCheck:
        """Return what the rail reports of an account whose identifier is valid."""

    def micro_deposits(self, challenge_id: Id) -> Sequence[int]:
        """Return the amounts that the rail pays to an account for its owner to name."""


# --- money -------------------------------------------------------------------------------------


class RailAction(Enum):
    """What a payment rail does with a payment."""

    SUBMIT = auto()  # It has taken it over: it cannot be cancelled any more.
    COMPLETE = auto()
    FAIL = auto()
    RETURN = auto()  # The receiving bank sends a completed payment back.


@dataclass(frozen=True, slots=True, kw_only=True)
class RailPayment:
    """What a rail has to know of a payment; `done` is how many steps it has made of it.

    `ending` is the end of the identifier of the external account, or a UMA address.
    """

    ending: str
    is_pull: bool
    is_quoted: bool
    done: int
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RailStep:
    """The next step of a rail: `action` at `at`.

    When it fails, `reason` says why; `is_cancellation` of the user, and `refund_fails` when what
    was debited cannot be given back.
    """

    action: RailAction
    at: datetime
    reason: FailureReason | None = None
    is_cancellation: bool = False
    refund_fails: bool = False


class FundingRail(Protocol):
    """Pulls money from funding accounts for card transactions.

    The engine calls it inside a batch, so every answer must come from memory. `descriptor` is the
    merchant's; it is empty while no message has named a merchant.
    """

    def accepts_deposits(self) -> bool:
        """Return whether a message may say that money has arrived: in a sandbox."""

    def issuer_decline(self, descriptor: str) -> DeclineReason | None:
        """Return the decline of the issuer's processor; None: it leaves the decision to us."""

    def refuses_pull(self, descriptor: str) -> bool:
        """Return whether a pull after a clearing fails, as if without funds."""

    def confirms_later(self, descriptor: str) -> bool:
        """Return whether the pull of an authorization stays pending for a while."""

    def confirms(self, descriptor: str) -> bool:
        """Return whether the confirmation of a pending pull will succeed."""

    def confirmation_due_at(self, requested_at: datetime) -> datetime:
        """Return when a pull that is pending since `requested_at` gets its confirmation."""

    def payment_step(self, payment: RailPayment) -> RailStep | None:
        """Return the next step of `payment`; None: there is none, or a message will tell."""


class ReferenceRates(Protocol):
    """Knows exchange rates where the installation has none of its own."""

    def per_dollar(self, currency: str) -> Fraction | None:
        """Return how many units of `currency` there are for one US dollar; None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """A bank or a provider of mobile money; `bank_name` is what external accounts call it."""

    bank_name: str
    display_name: str
    country: str
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UmaProvider:
    """A provider of UMA addresses; payments to it are allowed or not."""

    name: str
    domain: str
    supported_regions: Sequence[str]
    supported_currencies: Sequence[str]
    is_allowed: bool
    logo_url: str | None = None
    lei: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vasp:
    """A provider of wallets (virtual asset service provider)."""

    name: str
    url: str | None = None


class Directory(Protocol):
    """Knows who can be paid outside the service."""

    def banks(self) -> Sequence[Bank]:
        """Return banks and providers of mobile money."""

    def uma_providers(self) -> Sequence[UmaProvider]:
        """Return the providers of UMA addresses."""

    def vasps(self) -> Sequence[Vasp]:
        """Return the providers of wallets."""


class UmaFailure(Enum):
    """Why the institution of a UMA address could not be asked."""

    UNSUPPORTED_VERSION = auto()
    NO_COMMON_VERSION = auto()
    LOOK_UP_FAILED = auto()
    KEYS_UNAVAILABLE = auto()
    PAYMENT_REQUEST_FAILED = auto()


class UmaFailedError(Exception):
    """The institution of a UMA address could not be asked, or gave no usable answer."""

    def __init__(self, failure: UmaFailure) -> None:
        super().__init__(failure.name)
        self.failure: Final = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class UmaReceiver:
    """The owner of a UMA address elsewhere: what it takes, and what it asks about the sender.

    `required_fields` by the names of the interface, each with whether it is mandatory.
    """

    address: str
    currencies: Sequence[str]
    name: str | None = None
    required_fields: Mapping[str, bool] = field(default_factory=dict)


class SystemUnavailableError(Exception):
    """A system outside does not answer now; the message is for the operator."""


class UmaNetwork(Protocol):
    """Knows the UMA addresses of other institutions."""

    def find(self, address: str) -> UmaReceiver | None:
        """Return the owner of `address`; None: there is none.

        Raises: UmaFailedError.
        """

    def accept(self, address: str) -> None:
        """Agree with the institution of `address` on a payment that is being quoted.

        Raises: UmaFailedError.
        """


class FundingInstructions(Protocol):
    """Knows how money can be sent to this installation from outside."""

    def for_quote(
        self, currency: str, network: str | None, reference: str
    ) -> Sequence[Mapping[str, Any]] | None:
        """Return the ways to pay a quote; None: none in the currency, or by the network.

        Raises: SystemUnavailableError.
        """


# --- composition -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """The connected adapters of a process; None: nothing is connected to the port."""

    issuer: Issuer | None = None
    identity_verifier: IdentityVerifier | None = None
    code_sender: CodeSender | None = None
    account_verifier: AccountVerifier | None = None
    funding_rail: FundingRail | None = None
    reference_rates: ReferenceRates | None = None
    directory: Directory | None = None
    uma_network: UmaNetwork | None = None
    funding_instructions: FundingInstructions | None = None


NONE_CONNECTED: Final = Adapters()
