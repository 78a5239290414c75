"""The sandbox's directory: banks, mobile money and providers, all made up (directory.toml)."""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from typing_extensions import override

from cardledger.ledger.ports import Bank, Directory, UmaProvider, Vasp


class SandboxDirectory(Directory):
    """Knows what its file has."""

    @override
    def banks(self) -> Sequence[Bank]:
        return [Bank(**entry) for entry in _file()["bank"]]

    @override
    def uma_providers(self) -> Sequence[UmaProvider]:
        return [UmaProvider(**entry) for entry in _file()["uma_provider"]]

    @override
    def vasps(self) -> Sequence[Vasp]:
        return [Vasp(**entry) for entry in _file()["vasp"]]


@cache
def _file() -> dict[str, Any]:
    path = files("cardledger.ledger.sandbox").joinpath("directory.toml")
    return tomllib.loads(path.read_text("utf-8"))
