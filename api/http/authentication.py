"""Authentication: platforms with HTTP Basic, agents with a bearer token."""

import asyncio
import binascii
import time
from asyncio import Future
from base64 import b64decode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from cardledger.api.addresses import counted_as
from cardledger.api.http.errors import ApiError
from cardledger.api.http.in_flight import Turn, Turns
from cardledger.api.http.rate_limits import RateLimits, remember
from cardledger.ledger.agents import access_tokens
from cardledger.ledger.agents import registry as agents
from cardledger.ledger.agents.policy import AgentPermission
from cardledger.ledger.agents.registry import Agent
from cardledger.ledger.platforms import api_tokens
from cardledger.ledger.platforms.api_tokens import ProvenToken, StoredToken
from cardledger.ledger.platforms.scopes import Permission, Token
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.secret_hashes import AGENT_TOKEN, Rehash
from cardledger.schema.ids import Id
from cardledger.schema.wire.errors import Code

_CACHE_TTL_S: Final = 3.0  # A deleted token is accepted for at most this long.
_CACHE_LIMIT: Final = 10_000
_AGENTS_LIMIT: Final = 50_000  # Those of five platforms, at about 200 bytes each.
_LOOK_UPS: Final = 8  # Connections on which credentials are looked up.
_LOOK_UPS_OF_AGENTS: Final = 4  # Of agents and device codes; the others are left to tokens.
_LOOK_UPS_OF_UNKNOWN: Final = 2  # Of these, of device codes, and of agents that are new to it.
_LOOK_UPS_OF_ONE: Final = 2  # Of one credential, or of one address without a known one.
_LOOK_UPS_OF_PLATFORM: Final = 2  # Of its agents whose tokens have succeeded before, together.
_GUESSES: Final = 2  # Of callers from addresses over the limit on failures, together.

FAILURES: Final = "failures"
"""The limit on wrong credentials."""

AGENT_REQUESTS: Final = "agent requests"
"""The limit on requests of all agents of one platform, which leave it its own."""

REFUSAL_PAUSE_S: Final = 0.25
"""How long the refusal of wrong credentials over that limit waits.

A flood of guesses takes the event loop for four refusals a second on a connection, instead of for
as many as it can send; a person does not notice.
"""

_SEND_BASIC: Final = (
    "Send HTTP Basic credentials: the client id as user name, its secret as password."
)
_SEND_BEARER: Final = "Send the agent's access token: Authorization: Bearer <accessToken>."
_BEARER: Final = 'Bearer realm="api"'


class Authenticator:
    """Authenticates callers; right credentials pass, whatever others did from their address.

    So secrets are compared first, and failures are counted afterwards: by id, or by address where
    there is no such id (docs/decisions/0042-failures-are-counted-by-id.md). Tokens are cached
    by client id for a short time. Callers from an address over the limit take turns at the
    database, unless their credentials have succeeded before.

    Agents are looked up for each request, so those of a platform take turns of their own. Of agents
    that have not succeeded before, two are looked up at a time.
    """

    def __init__(  # noqa: PLR0913 - each by name
        self,
        engine: AsyncEngine,
        keys: KeyRing,
        limits: RateLimits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        used: Callable[[Id], None] = lambda _: None,
        outdated: Callable[[Rehash], None] = lambda _: None,
    ) -> None:
        """Look up tokens through `engine`; hash presented secrets with `keys`.

        `used` is called with the id of every token that is admitted; `outdated`, during a rotation
        of the server key, with the hash of a presented secret that a former key has made.
        """
        self._engine: Final = engine
        self._keys: Final = keys
        self._limits: Final = limits
        self._monotonic: Final = monotonic
        self._clock: Final = clock
        self._used: Final = used
        self._outdated: Final = outdated
        self._stored: Final[OrderedDict[str, tuple[StoredToken, float]]] = OrderedDict()
        self._looking: Final[dict[str, Future[StoredToken | None]]] = {}
        # Hashes of secrets that have succeeded, and stamps of sessions; of agents, the platform.
        self._proven: Final[OrderedDict[bytes, None]] = OrderedDict()
        self._proven_agents: Final[OrderedDict[bytes, Id]] = OrderedDict()
        self._look_ups: Final = asyncio.Semaphore(_LOOK_UPS)
        self._look_ups_of_agents: Final = asyncio.Semaphore(_LOOK_UPS_OF_AGENTS)
        self._look_ups_of_unknown: Final = asyncio.Semaphore(_LOOK_UPS_OF_UNKNOWN)
        self._turns: Final = Turns()

    async def token(self, authorization: Sequence[str], *, address: str = "") -> Token:
        """Return the token that the `Authorization` header values present.

        Raises: as `proven`.
        """
        return (await self.proven(authorization, address=address)).token

    async def proven(self, authorization: Sequence[str], *, address: str = "") -> ProvenToken:
        """Return the token that the `Authorization` header values present, with their proof.

        Raises: ApiError UNAUTHORIZED; FORBIDDEN from an address that the token does not allow;
        RATE_LIMITED after too many failures.
        """
        client_id, secret = _credentials(authorization)
        presented = api_tokens.presented(self._keys, client_id, secret)
        stored, until = self._stored.get(client_id, (None, 0.0))
        now, at = self._monotonic(), self._clock()
        # Another process may have rotated the secret, so a cached token never refuses one.
        if stored is None or now >= until:
            stored = await self._looked_up_by_another(client_id)
        if stored is None or not stored.proves(presented, at):
            stored = await self._look_up(client_id, address, presented.digest)
        if stored is not None and stored.proves(presented, at):
            remember(self._proven, presented.digest, None, limit=_CACHE_LIMIT)
            token = self._within_limits(stored.token, address, at)
            if self._keys.is_rotating and (rehash := stored.replacement(presented)):
                self._outdated(rehash)
            return ProvenToken(token=token, proof=lambda found, at: found.proves(presented, at))
        self._proven.pop(presented.digest, None)  # Revoked: its owner takes turns like a stranger.
        await self.count_failure(address, credential=None if stored is None else client_id)
        raise ApiError(Code.UNAUTHORIZED, f"Invalid credentials. {_SEND_BASIC}")

    async def session_stamp(
        self, client_id: str, secret: str | None = None, *, address: str = ""
    ) -> bytes | None:
        """Return the stamp of `secret`, to begin a session with; None: it is not the token's.

        Without a secret, that of the token's current one.
        """
        if secret is None:
            stored = await self._current(client_id, address, b"")
            return None if stored is None else stored.stamp
        presented = api_tokens.presented(self._keys, client_id, secret)
        stored = await self._current(client_id, address, presented.digest)
        return None if stored is None else stored.stamp_of(presented)

    async def session_token(
        self, client_id: str, stamp: bytes, *, address: str = ""
    ) -> ProvenToken | None:
        """Return the token of a session that began with `stamp`, with that as its proof.

        None once the token was deleted or has expired, or its secret was replaced.
        Raises: ApiError FORBIDDEN from an address that the token does not allow.
        """
        # Its cookie is signed: the secret has succeeded, perhaps in another process.
        remember(self._proven, stamp, None, limit=_CACHE_LIMIT)
        stored = await self._current(client_id, address, stamp)
        at = self._clock()
        if stored is None or not stored.has_stamp(stamp, at) or stored.token.limits.is_expired(at):
            self._proven.pop(stamp, None)
            return None
        token = self._within_limits(stored.token, address, at)
        return ProvenToken(token=token, proof=lambda found, at: found.has_stamp(stamp, at))

    async def _current(self, client_id: str, address: str, presented: bytes) -> StoredToken | None:
        stored, until = self._stored.get(client_id, (None, 0.0))
        if stored is None or self._monotonic() >= until:
            stored = await self._looked_up_by_another(client_id)
        return stored or await self._look_up(client_id, address, presented)

    async def _look_up(self, client_id: str, address: str, presented: bytes) -> StoredToken | None:
        """Read the token of `client_id`; others wait for it if `presented` has succeeded before.

        They never wait for a caller who may be guessing, and so may have to wait for a turn.
        """
        now = self._monotonic()
        found: Future[StoredToken | None] = asyncio.get_running_loop().create_future()
        if presented in self._proven and client_id not in self._looking:
            self._looking[client_id] = found
        stored = None
        try:
            async with (
                self._turn(address, client_id, presented),
                self._connected() as connection,
            ):
                stored = await api_tokens.find(connection, client_id)
            self._keep(client_id, stored, now + _CACHE_TTL_S)
        finally:
            if self._looking.get(client_id) is found:
                del self._looking[client_id]
            found.set_result(stored)  # None where it failed.
        return stored

    async def _looked_up_by_another(self, client_id: str) -> StoredToken | None:
        """Return what a look-up that is under way finds; None: there is none.

        A busy token's copy expires for many requests at once. After one that fails, one of those
        who waited for it begins the next.
        """
        while (found := self._looking.get(client_id)) is not None:
            if (stored := await asyncio.shield(found)) is not None:
                return stored
        return None

    def _within_limits(self, token: Token, address: str, at: datetime) -> Token:
        if token.limits.is_expired(at):
            message = "The API token has expired; use another token."
            raise ApiError(Code.UNAUTHORIZED, message)
        if not token.limits.allows_address(address):
            message = "The API token cannot be used from this address; see its allowedAddresses."
            details = {"reason": "ADDRESS_NOT_ALLOWED"}
            raise ApiError(Code.FORBIDDEN, message, details=details)
        self._used(token.id)
        return token

    async def agent(self, authorization: Sequence[str], *, address: str = "") -> Agent:
        """Return the agent whose access token the `Authorization` header values present.

        Never cached: a deleted agent is refused at once, in every process. It is not looked up
        while the agents of the platform for which its token has succeeded are over their limit.
        Raises: ApiError UNAUTHORIZED; RATE_LIMITED over that limit, or after too many failures.
        """
        token = _bearer(authorization)
        presented = access_tokens.presented(self._keys, token)
        if (platform_id := self._proven_agents.get(presented.digest)) is not None:
            self._limits.check(AGENT_REQUESTS, str(platform_id))
        named = access_tokens.agent_id_in(token)
        credential = None if named is None else str(named)
        async with self.looking_up(address, credential, presented.digest) as connection:
            found = await agents.authenticate(connection, token, presented)
        if found.agent is not None:
            platform_id = found.agent.platform_id
            remember(self._proven_agents, presented.digest, platform_id, limit=_AGENTS_LIMIT)
            if self._keys.is_rotating and found.agent_id and found.outdated_hash:
                self._outdated(
                    Rehash(AGENT_TOKEN, found.agent_id, found.outdated_hash, presented.digest)
                )
            return found.agent
        self._proven_agents.pop(presented.digest, None)
        await self.count_failure(
            address, credential=None if found.agent_id is None else str(found.agent_id)
        )
        message = f"Invalid credentials: unknown token or deleted agent. {_SEND_BEARER}"
        raise _bearer_error(message, f'{_BEARER}, error="invalid_token"')

    @asynccontextmanager
    async def looking_up(
        self, address: str, credential: str | None, presented: bytes
    ) -> AsyncIterator[AsyncConnection]:
        """Return a connection on which to look up the credentials of a caller from `address`.

        Few at a time are looked up, and fewer of each caller: it is not known yet whose platform's
        slots a request belongs to. When the address is over the limit on failures, or their id
        `credential`, if they have one, all such callers take turns together; those whose secret,
        with the hash `presented`, has succeeded before do not, and agents among them take turns
        with those of their platform. Half of the connections are left to tokens, and of the others
        half to agents whose tokens have succeeded before.
        """
        is_known = presented in self._proven_agents
        async with (
            # Not by the id: with a new one each time, a stranger would never wait for a turn.
            self._turn(address, credential, presented, by_id=is_known),
            nullcontext() if is_known else self._look_ups_of_unknown,
            self._look_ups_of_agents,
            self._connected() as connection,
        ):
            yield connection

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        async with self._look_ups, self._engine.connect() as connection:
            yield connection

    def _turn(
        self, address: str, credential: str | None, presented: bytes, *, by_id: bool = True
    ) -> AbstractAsyncContextManager[None]:
        turn = self._turn_of(address, credential, presented, by_id=by_id)
        return self._turns.take(turn, may_refuse=False)

    def _turn_of(
        self, address: str, credential: str | None, presented: bytes, *, by_id: bool
    ) -> Turn:
        if (platform_id := self._proven_agents.get(presented)) is not None:
            return Turn(f"agents of {platform_id}", _LOOK_UPS_OF_PLATFORM)
        is_guessing = presented not in self._proven and any(
            self._limits.is_exceeded(FAILURES, _counted_as(address, counted))
            for counted in {credential, None}
        )
        if is_guessing:
            return Turn("guesses", _GUESSES)
        return Turn(_counted_as(address, credential if by_id else None), _LOOK_UPS_OF_ONE)

    async def count_failure(self, address: str, *, credential: str | None) -> None:
        """Count wrong credentials by `credential`, the id in them; None: there is no such id.

        Raises: ApiError RATE_LIMITED when there have been too many, after `REFUSAL_PAUSE_S`.
        """
        try:
            self._limits.admit(FAILURES, _counted_as(address, credential))
        except ApiError:
            await asyncio.sleep(REFUSAL_PAUSE_S)
            raise

    def _keep(self, client_id: str, stored: StoredToken | None, until: float) -> None:
        if stored is None:
            self._stored.pop(client_id, None)
        else:
            remember(self._stored, client_id, (stored, until), limit=_CACHE_LIMIT)

    def forget(self, token_id: Id) -> None:
        """Remove a deleted token from the cache; other processes do so when it expires."""
        for key in [key for key, (kept, _) in self._stored.items() if kept.token.id == token_id]:
            del self._stored[key]


def _counted_as(address: str, credential: str | None) -> str:
    return counted_as(address) if credential is None else f"id:{credential}"


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
