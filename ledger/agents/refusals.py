"""Why an agent is not created, or its policy not changed."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from cardledger.schema.wire.errors import FieldError


class AgentRefusal(Enum):
    """Why an agent or its policy is refused."""

    CUSTOMER = auto()  # Not a customer of the platform.
    POLICY = auto()  # Invalid, or names accounts of another customer.
    CURRENCY = auto()  # The platform does not support the currency of the limits.


class AgentRefusedError(Exception):
    """Nothing was written; `errors` name what to change, by paths from the top of the policy."""

    def __init__(self, refusal: AgentRefusal, *errors: FieldError) -> None:
        super().__init__(refusal.name)
        self.refusal: Final = refusal
        self.errors: Final[Sequence[FieldError]] = errors
