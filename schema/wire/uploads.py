"""Files that are uploaded as a part of a form (RFC 7578)."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema
from typing_extensions import override


@dataclass(frozen=True, repr=False)
class Upload:
    """What identifies a file of a form, without its content. No `repr`: names are personal data."""

    name: str  # As the sender states it: not safe as a path.
    size: int  # In bytes.
    digest: str  # SHA-256 of the content, in hexadecimal digits.

    @override
    def __str__(self) -> str:
        """Return what is equal for repetitions of a request: its name and its hash."""
        return f"{self.name} {self.digest}"


def _file(value: object) -> Upload:
    if not isinstance(value, Upload):
        message = "must be a file: a part of the form with a filename"
        raise ValueError(message)  # noqa: TRY004 - Pydantic wants a ValueError
    if not value.size:
        message = "is empty; send a file with content"
        raise ValueError(message)
    return value


UploadedFile = Annotated[
    Upload,
    PlainValidator(_file),
    WithJsonSchema({"type": "string", "format": "binary"}),
]
"""A file in the body of a request."""
