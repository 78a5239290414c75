"""The command and the composition root: settings, servers, `up`, `demo`, `submit`, `verify`."""

from importlib.metadata import version

__version__ = version("cardledger")
