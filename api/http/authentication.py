"""Authentication: platforms with HTTP Basic, agents with a bearer token."""

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

_CACHE_TTL_S: Final = 3.0  # A deleted token is accepted for at most this long.
_CACHE_LIMIT: Final = 10_000

FAILURES: Final = "failures"
"""The limit on wrong credentials."""

_SEND_BASIC: Final = (
    "Send HTTP Basic credentials: the client id as user name, its secret as password."
)
_SEND_BEARER: Final = "Send the agent's access token: Authorization: Bearer <accessToken>."
_BEARER: Final = 'Bearer realm="api"'


class Authenticator:
    """Authenticates callers, with a short-lived cache in front of the database.

    Only successes are cached, by client id and hash of the presented secret, so a wrong secret
    never matches a cached right one. Credentials that succeeded once are exempt from the limit on
    failures: a guesser behind the same address cannot lock their owner out.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        keys: KeyRing,
        limits: RateLimits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look up tokens through `engine`; hash presented secrets with `keys`."""
        self._engine: Final = engine
        self._keys: Final = keys
        self._limits: Final = limits
        self._monotonic: Final = monotonic
        self._known: Final[dict[tuple[str, bytes], tuple[Token, float]]] = {}
        self._proven: Final[set[tuple[str, bytes]]] = set()
        self._tried: Final[set[tuple[str, bytes]]] = set()  # In progress, for the first time.

    async def token(self, authorization: Sequence[str], *, address: str = "") -> Token:
        """Return the token that the `Authorization` header values present.

        `address` is the caller's address, which the limit on failures counts by.

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
                raise ApiError(Code.UNAUTHORIZED, f"Invalid credentials. {_SEND_BASIC}")
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known[key] = token, now + _CACHE_TTL_S
        return token

    async def agent(self, authorization: Sequence[str], *, address: str = "") -> Agent:
        """Return the agent whose access token the `Authorization` header values present.

        Never cached: a deleted agent is refused at once, in every process.
        Raises: ApiError UNAUTHORIZED; RATE_LIMITED after too many failures.
        """
        presented = self._keys.hash_secret(_bearer(authorization))
        with self._guessing(("", presented), stranger(address, "agent")):
            async with self._engine.connect() as connection:
                agent = await agents.authenticate_hash(connection, presented)
            if agent is None:
                message = f"Invalid credentials: unknown token or deleted agent. {_SEND_BEARER}"
                raise _bearer_error(message, f'{_BEARER}, error="invalid_token"')
        return agent

    @contextmanager
    def _guessing(self, presented: tuple[str, bytes], who: str) -> Iterator[None]:
        """Apply the limit on failures to `who`, unless `presented` succeeded before.

        Concurrent requests with the same credentials count as one guess: they reveal no more than
        one, and a client may start with many requests at once.
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
        if len(self._proven) >= _CACHE_LIMIT:
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
        """Remove a deleted token from the cache; other processes do so when it expires."""
        for key in [key for key, (token, _) in self._known.items() if token.id == token_id]:
            del self._known[key]


def require(token: Token, permission: Permission) -> None:
    """Check that `token` has `permission`.

    Raises: ApiError FORBIDDEN.
    """
    if not token.allows(permission):
        raise ApiError(
            Code.FORBIDDEN,
            f"The API token lacks the permission {permission}; use a token that has it.",
            details={"permission": permission.value},
        )


def require_of_agent(agent: Agent, permission: AgentPermission | None, *, writes: bool) -> None:
    """Check that the policy of `agent` grants `permission`, and that it may write if it `writes`.

    Raises: ApiError FORBIDDEN.
    """
    if writes and agent.is_paused:
        message = "Agent is paused; only read operations are allowed."
        raise ApiError(Code.FORBIDDEN, message, details={"reason": "AGENT_PAUSED"})
    if permission is not None and not agent.policy.allows(permission):
        raise ApiError(
            Code.FORBIDDEN,
            f"The agent's policy lacks the permission {permission}; its platform can grant it.",
            details={"permission": permission.value},
        )


def _bearer(authorization: Sequence[str]) -> str:
    if len(authorization) == 1:
        scheme, _, token = authorization[0].partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return token.strip()
    raise _bearer_error(_SEND_BEARER, _BEARER)


def _bearer_error(message: str, challenge: str) -> ApiError:
    return ApiError(Code.UNAUTHORIZED, message, headers={"WWW-Authenticate": challenge})


def _credentials(authorization: Sequence[str]) -> tuple[str, str]:
    if len(authorization) != 1:
        raise ApiError(Code.UNAUTHORIZED, _SEND_BASIC)
    scheme, _, encoded = authorization[0].partition(" ")
    if scheme.lower() != "basic":
        raise ApiError(Code.UNAUTHORIZED, _SEND_BASIC)
    try:
        decoded = b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        decoded = ""
    user, colon, password = decoded.partition(":")
    if not colon:
        message = f"Invalid credentials: not base64 of id:secret in UTF-8. {_SEND_BASIC}"
        raise ApiError(Code.UNAUTHORIZED, message)
    return user, password
