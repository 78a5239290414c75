"""The file of a document as it is uploaded: checked by its content, and encrypted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cardledger.ledger.customers.documents import file_names, formats
from cardledger.ledger.customers.documents.formats import DocumentRefusedError
from cardledger.ledger.ports import IdentityVerifier
from cardledger.schema.wire.customers.documents import Fault

_NONCE: Final = bytes(12)  # Each key encrypts one file.

_FAULTS: Final[Mapping[Fault, str]] = {
    Fault.LOW_QUALITY: "The document cannot be read; send a sharper picture.",
    Fault.DATA_MISMATCH: "The document does not match the holder's data; correct one of them.",
    Fault.EXPIRED: "The document has expired; send a valid one.",
    Fault.SUSPECTED_FRAUD: "The document may not be genuine; send the original.",
    Fault.UNSUITABLE_DOCUMENT: "The document is not of the stated type; send another one.",
    Fault.INCOMPLETE: "Parts of the document are missing; send all of it.",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckedFile:
    """A file that is accepted, encrypted with `key`. Without a `repr`: no log shows it."""

    name: str
    media_type: str
    size: int
    key: bytes
    sealed: bytes


def checked(name: str, content: bytes) -> CheckedFile:
    """Return the file that its sender calls `name`, checked by its content and encrypted.

    Takes some 30 ms for a large file. Raises: DocumentRefusedError.
    """
    media_type = formats.media_type_of(content)
    key = AESGCM.generate_key(bit_length=256)
    return CheckedFile(
        name=file_names.shown(name),
        media_type=media_type,
        size=len(content),
        key=key,
        sealed=AESGCM(key).encrypt(_NONCE, content, None),
    )


def opened(sealed: bytes, key: bytes) -> bytes:
    """Return the file that was `sealed` with the key of its document."""
    return AESGCM(key).decrypt(_NONCE, sealed, None)


def check_number(document_number: str | None, verifier: IdentityVerifier | None) -> None:
    """Check what the verifier says at once of a document; without one nothing is said.

    Raises: DocumentRefusedError.
    """
    fault = None if verifier is None else verifier.document_fault(document_number)
    if fault is not None:
        raise DocumentRefusedError(fault, _FAULTS[fault])
