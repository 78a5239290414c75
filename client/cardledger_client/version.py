"""The version of this distribution: that of the ledger which it was tested with."""

from typing import Final

VERSION: Final = "0.1.0"
