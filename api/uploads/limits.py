"""How large forms with a file may be, by the paths that take them."""

from typing import Final

from cardledger.api import BASE_PATH

DOCUMENT_FILE: Final = 10 * 1024 * 1024
"""Bytes of the file of a document."""

CUSTOMERS_FILE: Final = 32 * 1024 * 1024
"""Bytes of a file of customers."""

FORM_REST: Final = 128 * 1024
"""Bytes of a form beside its file: the fields, and the head of each part."""

_FILES: Final = {
    f"{BASE_PATH}/documents": DOCUMENT_FILE,
    f"{BASE_PATH}/customers/bulk/csv": CUSTOMERS_FILE,
}


def form_limit(path: str) -> int:
    """Return the most bytes of a form that is sent to `path`; 0: no form is expected there."""
    for beginning, file in _FILES.items():
        if path == beginning or path.startswith(f"{beginning}/"):
            return file + FORM_REST
    return 0
