"""The console: pages for people, made of what the API answers (docs/console.md).

A page parses its request, calls readers of the ledger and renders; it has no SQL and no rules.
"""

from typing import Final

ROOT: Final = "/console"
"""The path of the first page; the others are below it."""
