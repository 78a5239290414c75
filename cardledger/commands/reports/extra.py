"""The packages of the extra `export`, imported by the formats that need them."""

from importlib import import_module
from typing import Any

from cardledger.config.errors import CommandError


def package(name: str, *, needed_for: str) -> Any:  # noqa: ANN401 - a module that may be absent
    """Return the module `name`.

    Raises: CommandError with the command that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise CommandError(
            f"--format {needed_for} needs {name} ({error}): pip install 'cardledger[export]'"
        ) from None
