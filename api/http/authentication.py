"""Who calls: a platform with HTTP Basic, or an agent with its bearer token."""

import binascii
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from cardledger.api.http.errors import ApiError
from cardledger.api.http.rate_limits import RateLimits, stranger
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms.api_tokens import Permission, Token
from cardledger.ledger.storage.secrets import KeyRing
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code

_TTL_S: Final = 3.0  # A deleted token lives on for so long, and no longer.
_MANY: Final = 10_000

FAILURES: Final = "failures"
"""The limit on wrong credentials."""

_MESSAGE: Final = "send HTTP Basic credentials: the client id as user name, its secret as password"
_BEARER_MESSAGE: Final = "send the agent's access token: Authorization: Bearer <accessToken>"
_BEARER: Final = 'Bearer realm="api"'


class Authenticator:
    """Knows callers again without asking the database every time.

    Remembered are only successes, by client id and hash of the secret that was presented: a wrong
    secret never meets the memory of a right one. That is also why the limit on failures is not
    for those who once came with the same credentials and succeeded: a guesser who shares their
    address cannot lock them out.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        keys: KeyRing,
        limits: RateLimits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look tokens up through `engine`, hash what is presented with `keys`."""
        self._engine: Final = engine
        self._keys: Final = keys
        self._limits: Final = limits
        self._monotonic: Final = monotonic
        self._known: Final[dict[tuple[str, bytes], tuple[Token, float]]] = {}
        self._proven: Final[set[tuple[str, bytes]]] = set()
        self._tried: Final[set[tuple[str, bytes]]] = set()  # Just now, for the first time.

    async def token(self, authorization: Sequence[str], *, address: str = "") -> Token:
        """Return the token that the values of the `Authorization` header present.

        `address` is the caller's, for the limit on failures.

        Raises: ApiError UNAUTHORIZED; RATE_LIMITED after too many failures.
        """
        client_id, secret = _credentials(authorization)
        key = (client_id, self._keys.hash_secret(secret))
        now = self._monotonic()
        token, until = self._known.get(key, (None, 0.0))
        if token is not None and now < until:
            return token
        with self._guessing(key, stranger(address, client_id)):
            async with self._engine.connect() as connection:
                token = await api_tokens.authenticate_hash(connection, *key)
            if token is None:
                self._known.pop(key, None)
                raise ApiError(Code.UNAUTHORIZED, f"these credentials are not known; {_MESSAGE}")
        if len(self._known) >= _MANY:
            self._known.clear()
        self._known[key] = token, now + _TTL_S
        return token

    async def agent(self, authorization: Sequence[str], *, address: str = "") -> Agent:
        """Return the agent whose token the values of the `Authorization` header present.

        Asked of the database every time: a deleted agent is gone at once, everywhere.
        Raises: ApiError UNAUTHORIZED; RATE_LIMITED after too many failures.
        """
        presented = self._keys.hash_secret(_bearer(authorization))
        with self._guessing(("", presented), stranger(address, "agent")):
            async with self._engine.connect() as connection:
                agent = await agents.authenticate_hash(connection, presented)
            if agent is None:
                message = f"this access token is not known, or its agent is gone; {_BEARER_MESSAGE}"
                raise _no_agent(message, f'{_BEARER}, error="invalid_token"')
        return agent

    @contextmanager
    def _guessing(self, presented: tuple[str, bytes], who: str) -> Iterator[None]:
        """Hold `who` to the limit on failures, unless `presented` was right before.

        The same credentials many times at once are one guess: whoever starts with a hundred
        requests is no guesser, and whoever guesses learns no more from them.
        """
        try:
            if presented in self._proven or presented in self._tried:
                yield
            else:
                with self._limits.guessing(FAILURES, who), self._trying(presented):
                    yield
        except ApiError:
            self._proven.discard(presented)
            raise
        if len(self._proven) >= _MANY:
            self._proven.clear()
        self._proven.add(presented)

    @contextmanager
    def _trying(self, presented: tuple[str, bytes]) -> Iterator[None]:
        self._tried.add(presented)
        try:
            yield
        finally:
            self._tried.discard(presented)

    def forget(self, token_id: Id) -> None:
        """Forget a token that was deleted; other processes forget it in time."""
        for key in [key for key, (token, _) in self._known.items() if token.id == token_id]:
            del self._known[key]


def require(token: Token, permission: Permission) -> None:
    """Let `token` pass if it allows `permission`.

    Raises: ApiError FORBIDDEN.
    """
    if not token.allows(permission):
        raise ApiError(
            Code.FORBIDDEN,
            f"this token lacks the permission {permission}; use one that has it",
            details={"permission": permission.value},
        )


def require_of_agent(agent: Agent, permission: AgentPermission | None, *, writes: bool) -> None:
    """Let `agent` pass if it is not paused, where it `writes`, and its policy has `permission`.

    Raises: ApiError FORBIDDEN.
    """
    if writes and agent.is_paused:
        message = "this agent is paused and may only read; its platform can let it go on"
        raise ApiError(Code.FORBIDDEN, message, details={"reason": "AGENT_PAUSED"})
    if permission is not None and not agent.policy.allows(permission):
        raise ApiError(
            Code.FORBIDDEN,
            f"this agent's policy lacks the permission {permission}; its platform can grant it",
            details={"permission": permission.value},
        )


def _bearer(authorization: Sequence[str]) -> str:
    if len(authorization) == 1:
        scheme, _, token = authorization[0].partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise _no_agent(_BEARER_MESSAGE, _BEARER)


def _no_agent(message: str, challenge: str) -> ApiError:
    return ApiError(Code.UNAUTHORIZED, message, headers={"WWW-Authenticate": challenge})


def _credentials(authorization: Sequence[str]) -> tuple[str, str]:
    if len(authorization) != 1:
        raise ApiError(Code.UNAUTHORIZED, _MESSAGE)
    scheme, _, encoded = authorization[0].partition(" ")
    if scheme.lower() != "basic":
        raise ApiError(Code.UNAUTHORIZED, _MESSAGE)
    try:
        decoded = b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        decoded = ""
    user, colon, password = decoded.partition(":")
    if not colon:
        message = f"the credentials are not base64 of id:secret in UTF-8; {_MESSAGE}"
        raise ApiError(Code.UNAUTHORIZED, message)
    return user, password
