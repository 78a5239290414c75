"""Names of uploaded files, which nothing uses as a path and which people read."""

import re
import unicodedata
from typing import Final

_LENGTH: Final = 255
_EXTENSION_LENGTH: Final = 16
_ESCAPES: Final = {"%22": '"', "%0D": " ", "%0A": " ", "%0d": " ", "%0a": " "}
_FALLBACK: Final = "document"


def shown(name: str) -> str:
    """Return `name` without folders and without characters that are not seen.

    Shape: 1 to 255 characters; the end, with the extension, stays when it is too long.
    """
    for escape, character in _ESCAPES.items():  # As browsers send them in a form.
        name = name.replace(escape, character)
    name = re.split(r"[/\\]", name)[-1]
    # Controls, invisible ones that turn text around, surrogates, line and paragraph separators.
    kept = (
        character if not unicodedata.category(character).startswith(("C", "Zl", "Zp")) else " "
        for character in unicodedata.normalize("NFC", name)
    )
    name = " ".join("".join(kept).split()).lstrip(".")
    if len(name) > _LENGTH:
        stem, dot, extension = name.rpartition(".")
        end = dot + extension if len(extension) <= _EXTENSION_LENGTH else ""
        name = (stem or name)[: _LENGTH - len(end)] + end
    return name or _FALLBACK
