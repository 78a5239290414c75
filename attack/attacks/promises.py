"""Codes in addresses, quotes, and signing keys without end."""

import itertools
import secrets
from dataclasses import replace
from secrets import token_hex, token_urlsafe
from typing import Final
from uuid import uuid4

from attack import wire
from attack.arena import Arena, Attack
from attack.judge import Strike
from cardledger.api.routes.card_embed import PATH as CARD_PAGE
from cardledger.api.routes.customers.invitations import PAGE as INVITATION_PAGE
from cardledger.api.routes.customers.kyc_links import PATH as KYC_PAGE
from cardledger.ledger.customers.invitations import CODE_LENGTH

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_GUESSERS: Final = 32
_KEY_CONNECTIONS: Final = 16
_QUOTERS: Final = 64


def _code() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(CODE_LENGTH))


async def _codes(arena: Arena) -> Strike:
    """Guess codes of invitations and tokens of pages; nothing that exists may be found."""
    root = replace(arena.address, base="")

    def guess(number: int) -> bytes:
        match number % 5:
            case 0:
                return arena.request("GET", f"/invitations/{_code()}")
            case 1:
                return arena.request("POST", f"/invitations/{_code()}/cancel")
            case 2:
                return wire.request("GET", root, f"{INVITATION_PAGE}/{_code()}")
            case 3:
                token = f"{uuid4().hex}_{token_urlsafe(32)}"
                return wire.request("GET", root, f"{KYC_PAGE}/{token}")
            case _:
                return wire.request("GET", root, f"{CARD_PAGE}/{token_urlsafe(32)}")

    numbers = itertools.count()
    arena.begin()
    flood = await arena.flood(lambda: guess(next(numbers)), _GUESSERS)
    return flood.strike(404, 429, 503, processed=(404,))


async def _signing_keys(arena: Arena) -> Strike:
    root = replace(arena.address, base="")
    published = f"/.well-known/cardledger/webhook-keys/PlatformConfig:{arena.attacker.platform_id}"
    requests = itertools.cycle(
        [
            arena.request("POST", "/webhooks/signing-keys/rotate", {"overlapHours": 168}),
            arena.request("POST", "/webhooks/signing-keys/rotate", {"overlapHours": 0}),
            wire.request("GET", root, published),
        ]
    )
    arena.begin()
    flood = await arena.flood(lambda: next(requests), _KEY_CONNECTIONS)
    return flood.strike(200, 201, 409, 429, 503, processed=(200, 201))


async def _quotes(arena: Arena) -> Strike:
    rate = {"sourceCurrency": "USD", "destinationCurrency": "USDC", "exchangeRate": 1}
    await arena.made("/sandbox/exchange-rates", rate)
    wallet = {"accountType": "POLYGON_WALLET", "address": f"0x{token_hex(19)}aa"}
    wish = {
        "customerId": arena.attacker.customers[0],
        "currency": "USDC",
        "accountInfo": wallet,
    }
    account = (await arena.made("/customers/external-accounts", wish))["id"]
    body = {
        "source": {"sourceType": "ACCOUNT", "accountId": arena.attacker.accounts[0]},
        "destination": {"destinationType": "ACCOUNT", "accountId": account},
        "lockedCurrencySide": "SENDING",
        "lockedCurrencyAmount": 100,
    }
    whole = arena.request("POST", "/quotes", body)
    arena.begin()
    flood = await arena.flood(lambda: whole, _QUOTERS)
    return flood.strike(201, 429, 503, processed=(201,))


ATTACKS: Final = (
    Attack(
        item="C16",
        name="guessed codes",
        aim="guesses find an invitation, a verification page or a card page",
        run=_codes,
    ),
    Attack(
        item="C17",
        name="signing keys",
        aim="rotations in a loop make keys without end, which a stranger reads",
        run=_signing_keys,
    ),
    Attack(
        item="C18",
        name="quotes",
        aim=f"{_QUOTERS} connections of quotes delay another platform's authorizations",
        run=_quotes,
    ),
)
