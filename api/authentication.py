"""Who calls: HTTP Basic, client id and client secret."""

import binascii
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from api.errors import ApiError
from ledger import tokens
from ledger.secrets import KeyRing
from ledger.tokens import Permission, Token
from schema.wire.errors import Code

_TTL_S: Final = 3.0  # A deleted token lives on for so long, and no longer.
_MANY: Final = 10_000

_MESSAGE: Final = "send HTTP Basic credentials: the client id as user name, its secret as password"


class Authenticator:
    """Knows callers again without asking the database every time.

    Remembered are only successes, by client id and hash of the secret that was presented: a wrong
    secret never meets the memory of a right one.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        keys: KeyRing,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look tokens up through `engine`, hash what is presented with `keys`."""
        self._engine: Final = engine
        self._keys: Final = keys
        self._monotonic: Final = monotonic
        self._known: Final[dict[tuple[str, bytes], tuple[Token, float]]] = {}

    async def token(self, authorization: Sequence[str]) -> Token:
        """Return the token that the values of the `Authorization` header present.

        Raises: ApiError UNAUTHORIZED.
        """
        client_id, secret = _credentials(authorization)
        key = (client_id, self._keys.hash_secret(secret))
        now = self._monotonic()
        token, until = self._known.get(key, (None, 0.0))
        if token is not None and now < until:
            return token
        async with self._engine.connect() as connection:
            token = await tokens.authenticate_hash(connection, *key)
        if token is None:
            self._known.pop(key, None)
            raise ApiError(Code.UNAUTHORIZED, f"these credentials are not known; {_MESSAGE}")
        if len(self._known) >= _MANY:
            self._known.clear()
        self._known[key] = token, now + _TTL_S
        return token

    def forget(self, token_id: UUID) -> None:
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
