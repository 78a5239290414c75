"""Access tokens of agents: the agent's id, which is not secret, and 256 random bits."""

import re
import secrets
from typing import Final

from cardledger.ledger.storage.secrets.key_ring import KeyRing, PresentedSecret, Purpose
from cardledger.schema.ids import Id

# A prefix, by which scanners for leaked secrets recognize a token.
_PREFIX: Final = "clat_"
_TOKEN: Final = re.compile(rf"{_PREFIX}([0-9a-f]{{32}})_[A-Za-z0-9_-]{{43}}", re.ASCII)


def new(agent_id: Id) -> str:
    """Return a new access token of an agent."""
    return f"{_PREFIX}{agent_id.hex()}_{secrets.token_urlsafe(32)}"


def agent_id_in(token: str) -> Id | None:
    """Return the agent's id in `token`; None: it has none, as tokens of earlier releases."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else Id.fromhex(match[1])


def hash_of(keys: KeyRing, token: str) -> bytes:
    """Return the hash of an access token, as it is stored."""
    return presented(keys, token).digest


def presented(keys: KeyRing, token: str) -> PresentedSecret:
    """Return a presented access token, any input, as that of the agent that it names."""
    agent_id = agent_id_in(token)
    return keys.presented(token, Purpose.AGENT, "" if agent_id is None else agent_id.hex())
