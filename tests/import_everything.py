"""Import every module of the installed package: python tests/import_everything.py.

Standard library only, so that it runs where no test tool is installed.
"""

import importlib
import importlib.util
import pkgutil

import cardledger

_RUN_ONLY = ("cardledger.__main__", "cardledger.schema.migrations.")  # By Python and by Alembic.
_OPTIONAL = {"cardledger.ledger.testing": "hypothesis"}  # The extra that a module belongs to.


def import_everything() -> list[str]:
    """Return the names of the imported modules; a module of an absent extra is left out."""
    skipped = _RUN_ONLY + tuple(
        module for module, needs in _OPTIONAL.items() if importlib.util.find_spec(needs) is None
    )
    names = [
        module.name
        for module in pkgutil.walk_packages(cardledger.__path__, "cardledger.")
        if not module.name.startswith(skipped)
    ]
    for name in names:
        importlib.import_module(name)
    return names


if __name__ == "__main__":
    print(f"imported {len(import_everything())} modules")
