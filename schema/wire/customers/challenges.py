"""Challenges of external accounts: their owner names amounts that were paid to them."""

from typing import Annotated, Literal

from pydantic import Field

from cardledger.schema.wire.common import (
    Amount,
    ExternalAccountChallengeId,
    ExternalAccountId,
    Request,
    Response,
    Time,
)


class ExternalAccountVerify(Request):
    """The amounts that have arrived, in any order."""

    amounts: Annotated[list[Amount], Field(min_length=2, max_length=2)]


class ExternalAccountChallengeResource(Response):
    """A challenge: two small amounts are paid to the account, for its owner to name."""

    id: ExternalAccountChallengeId
    external_account_id: ExternalAccountId
    type: Literal["MICRO_DEPOSITS"]
    currency: str
    attempts_left: int
    created_at: Time
    expires_at: Time
