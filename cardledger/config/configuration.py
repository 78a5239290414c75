"""Settings of a command: command-line options override the environment."""

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cardledger.config import logs
from cardledger.config.errors import USAGE, CommandError
from cardledger.config.settings import Settings
from cardledger.embedded.directories import make_passable


def load(*, log_level: str | None = None, process: str | None = None, **given: Any) -> Settings:  # noqa: ANN401
    """Return the settings and set up the logs; `given` wins where it is not None.

    `log_level` is for commands whose logs are of interest only when something is wrong.
    Raises: CommandError naming the variable or option.
    """
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise CommandError(_explain(error), code=USAGE) from None
    asked_for_more = settings.log_level == "debug"
    level = settings.log_level if asked_for_more or not log_level else log_level
    logs.configure(level, settings.log_format, process=process)
    return settings


def writable_directory(path: Path) -> Path:
    """Return `path`, made if it was not there.

    Raises: CommandError when nothing can be written there.
    """
    try:
        make_passable(path)
    except OSError as error:
        raise CommandError(
            f"cannot create the data directory {path}: {error.strerror}; choose another --data-dir"
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise CommandError(f"cannot write to {path}; choose another --data-dir")
    return path


def _explain(error: ValidationError) -> str:
    problems = []
    for complaint in error.errors(include_url=False, include_input=False):
        message = complaint["msg"].removeprefix("Value error, ")
        name = ".".join(str(part) for part in complaint["loc"])
        variable = name if name.isupper() or not name else f"CARDLEDGER_{name}".upper()
        problems.append(f"{variable}: {message}" if name else message)
    return "; ".join(problems)
