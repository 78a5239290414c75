"""Wallet addresses, network by network: their alphabets, their lengths, their checksums."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

# --- Base58: Solana, Tron ----------------------------------------------------------------------

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_KEY_BYTES: Final = 32
_TRON_BYTES: Final = 21
_TRON_PREFIX: Final = b"\x41"
_CHECKSUM_BYTES: Final = 4


def is_solana(address: str) -> bool:
    """Return whether `address` is a public key of 32 bytes in Base58."""
    return len(_base58(address)) == _KEY_BYTES


def is_tron(address: str) -> bool:
    """Return whether `address` is Base58Check: a prefix, 20 bytes, half a double SHA-256."""
    raw = _base58(address)
    body, checksum = raw[:_TRON_BYTES], raw[_TRON_BYTES:]
    wanted = sha256(sha256(body).digest()).digest()[:_CHECKSUM_BYTES]
    return len(body) == _TRON_BYTES and body.startswith(_TRON_PREFIX) and checksum == wanted


def _base58(text: str) -> bytes:
    """Return the bytes of `text`; none when a character is not of the alphabet."""
    number = 0
    for character in text:
        digit = _BASE58.find(character)
        if digit < 0:
            return b""
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")


# --- EIP-55: Ethereum, Base, Polygon -----------------------------------------------------------

_EVM: Final = re.compile(r"0x[0-9a-fA-F]{40}")
_UPPER_FROM: Final = 8


def is_evm(address: str) -> bool:
    """Return whether `address` has 20 bytes and, when its case is mixed, the case of EIP-55."""
    if not _EVM.fullmatch(address):
        return False
    digits = address[2:]
    if digits in {digits.lower(), digits.upper()}:
        return True  # Without a checksum, which EIP-55 allows.
    hashed = keccak_256(digits.lower().encode()).hex()
    return all(
        digit == (digit.upper() if int(nibble, 16) >= _UPPER_FROM else digit.lower())
        for digit, nibble in zip(digits, hashed, strict=False)
    )


_RATE: Final = 136
_LANES: Final = 25
_WORD: Final = 2**64 - 1


def keccak_256(message: bytes) -> bytes:
    """Return the Keccak-256 of `message`: SHA-3 before NIST changed its padding.

    Source: https://keccak.team/keccak_specs_summary.html
    """
    padded = bytearray(message + b"\x01" + bytes(-(len(message) + 1) % _RATE))
    padded[-1] |= 0x80
    state = [0] * _LANES
    for start in range(0, len(padded), _RATE):
        for lane in range(_RATE // 8):
            at = start + 8 * lane
            state[lane] ^= int.from_bytes(padded[at : at + 8], "little")
        state = _permuted(state)
    return b"".join(lane.to_bytes(8, "little") for lane in state[:4])


def _permuted(state: Sequence[int]) -> list[int]:
    """Return Keccak-f[1600] of 25 lanes, lane x + 5 y at column x and row y."""
    lanes = list(state)
    register = 1
    for _ in range(24):
        # Theta: every lane meets the parity of two columns beside it.
        parity = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20]
                  for x in range(5)]  # fmt: skip
        mixed = [parity[x - 1] ^ _rotated(parity[(x + 1) % 5], 1) for x in range(5)]
        lanes = [lane ^ mixed[at % 5] for at, lane in enumerate(lanes)]
        # Rho and pi: lanes turn, and move along one long cycle.
        x, y, carried = 1, 0, lanes[1]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            turned = _rotated(carried, (step + 1) * (step + 2) // 2)
            carried, lanes[x + 5 * y] = lanes[x + 5 * y], turned
        # Chi: the only step that is not linear.
        lanes = [
            lanes[x + y] ^ (~lanes[(x + 1) % 5 + y] & _WORD & lanes[(x + 2) % 5 + y])
            for y in range(0, _LANES, 5)
            for x in range(5)
        ]
        # Iota: a constant from a shift register breaks the symmetry of the rounds.
        for bit in range(7):
            if register & 1:
                lanes[0] ^= 1 << ((1 << bit) - 1)
            register = (register << 1) ^ (0x171 if register & 0x80 else 0)
    return lanes


def _rotated(lane: int, by: int) -> int:
    by %= 64
    return ((lane << by) | (lane >> (64 - by))) & _WORD


# --- Bech32 and Bech32m: Lightning, Spark ------------------------------------------------------

_BECH32: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATORS: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
BECH32: Final = 1
BECH32M: Final = 0x2BC830A3
_CHECKSUM_LENGTH: Final = 6
_SPARK: Final = tuple(
    f"{name}{network}" for name in ("spark", "sp") for network in ("", *"tsl", "rt")
)
_INVOICE: Final = re.compile(r"ln(?:bcrt|bc|tbs|tb)(?:[0-9]+[munp]?)?")
_OFFER: Final = re.compile(rf"lno1[{_BECH32}]+")
_LIGHTNING_ADDRESS: Final = re.compile(r"[a-z0-9._+-]{1,64}@(?:[a-z0-9-]{1,63}\.)+[a-z]{2,63}")


def is_spark(address: str) -> bool:
    """Return whether `address` is Bech32m with a prefix of Spark, on any of its networks.

    The checksum may be that of another of the prefixes: Spark renamed them, and the address that
    its own documentation shows has kept the checksum of its old name.
    """
    human, data = _parts(address)
    return human in _SPARK and any(_is_checked(prefix, data, BECH32M) for prefix in _SPARK)


def is_invoice(text: str) -> bool:
    """Return whether `text` is an invoice of BOLT 11."""
    human, data = _parts(text)
    return _INVOICE.fullmatch(human) is not None and _is_checked(human, data, BECH32)


def is_offer(text: str) -> bool:
    """Return whether `text` is an offer of BOLT 12, which has no checksum."""
    return _OFFER.fullmatch(_one_case(text)) is not None


def is_lightning_address(text: str) -> bool:
    """Return whether `text` is of the form name@domain of LUD-16."""
    return _LIGHTNING_ADDRESS.fullmatch(text) is not None


def _parts(text: str) -> tuple[str, str]:
    """Return what is before and behind the last `1`; nothing behind it when there is none."""
    human, _, data = _one_case(text).rpartition("1")
    return human, data


def _is_checked(human: str, data: str, constant: int) -> bool:
    if len(data) < _CHECKSUM_LENGTH or any(character not in _BECH32 for character in data):
        return False
    values = [
        *(ord(character) >> 5 for character in human),
        0,
        *(ord(character) & 31 for character in human),
        *(_BECH32.index(character) for character in data),
    ]
    return _polymod(values) == constant


def _one_case(text: str) -> str:
    """Return `text` in lower case; nothing when its case is mixed, which Bech32 forbids."""
    return text.lower() if text in {text.lower(), text.upper()} else ""


def _polymod(values: Sequence[int]) -> int:
    """Return the remainder that BIP 173 defines."""
    checksum = 1
    for value in values:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            checksum ^= generator if top >> bit & 1 else 0
    return checksum


# --- by account type and field -----------------------------------------------------------------

Objection = Callable[[str], str | None]
"""What is wrong with an address; None: nothing."""


def _unless(is_right: Callable[[str], bool], message: str) -> Objection:
    return lambda address: None if is_right(address) else message


def _form(pattern: str, described: str) -> Objection:
    compiled = re.compile(pattern)
    return _unless(lambda text: compiled.fullmatch(text) is not None, f"must be {described}")


_EVM_ADDRESS: Final = _unless(
    is_evm,
    "is not a valid address of this network: it must be 0x and 40 hexadecimal digits, in the case"
    " of EIP-55 or in one case",
)
_LIGHTNING_FORM: Final = _unless(
    is_lightning_address, "is not a valid Lightning address: it must be of the form name@domain"
)

OBJECTIONS: Final[Mapping[str, Mapping[str, Objection]]] = {
    "BASE_WALLET": {"address": _EVM_ADDRESS},
    "ETHEREUM_WALLET": {"address": _EVM_ADDRESS},
    "LIGHTNING": {
        "invoice": _unless(
            is_invoice,
            "is not a valid invoice of BOLT 11: its prefix, its characters or its checksum are"
            " wrong",
        ),
        "bolt12": _unless(
            is_offer, "is not a valid offer of BOLT 12: its prefix or its characters are wrong"
        ),
        "lightning_address": _LIGHTNING_FORM,
    },
    "POLYGON_WALLET": {"address": _EVM_ADDRESS},
    "SOLANA_WALLET": {
        "address": _unless(
            is_solana,
            "is not a valid Solana address: it must be a public key of 32 bytes in Base58, whose"
            " alphabet has no 0, O, I and l",
        )
    },
    "SPARK_WALLET": {
        "address": _unless(
            is_spark,
            "is not a valid Spark address: its prefix, its characters (Bech32m) or its checksum are"
            " wrong",
        )
    },
    "TRON_WALLET": {
        "address": _unless(
            is_tron,
            "is not a valid Tron address: its alphabet (Base58, no 0, O, I and l), its length or"
            " its checksum is wrong",
        )
    },
}
"""Where a network is real: its alphabet, its length and its checksum."""

_EVM_FORM: Final = _form(_EVM.pattern, "0x and 40 hexadecimal digits")

FORMS: Final[Mapping[str, Mapping[str, Objection]]] = {
    "BASE_WALLET": {"address": _EVM_FORM},
    "ETHEREUM_WALLET": {"address": _EVM_FORM},
    "LIGHTNING": {
        "invoice": _form(_INVOICE.pattern + "1[0-9A-Za-z]{20,}", "of the form lnbc…1… of BOLT 11"),
        "bolt12": _form("lno1[0-9A-Za-z]+", "of the form lno1… of BOLT 12"),
        "lightning_address": _LIGHTNING_FORM,
    },
    "POLYGON_WALLET": {"address": _EVM_FORM},
    "SOLANA_WALLET": {"address": _form("[0-9A-Za-z]{32,44}", "32 to 44 letters and digits")},
    "SPARK_WALLET": {
        "address": _form(
            f"(?:{'|'.join(_SPARK)})1[0-9a-z]{{20,}}",
            "the prefix of a Spark network, such as spark1, and at least 20 letters and digits",
        )
    },
    "TRON_WALLET": {"address": _form("T[0-9A-Za-z]{33}", "T and 33 letters and digits")},
}
"""In a sandbox, where an address may end in anything: any letters and digits, no checksum.

The alphabets of Base58 and Bech32 lack digits that magic suffixes have.
"""
