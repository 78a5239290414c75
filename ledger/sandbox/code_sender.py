"""The sandbox's sender of one-time codes: it sends nothing, and every code is the same."""

from typing import Final

from typing_extensions import override

from cardledger.ledger.ports import CodeSender
from cardledger.schema.wire.customers.authentication import Channel

CODE: Final = "123456"
"""The code of every message, and one that every authenticator could show."""


class SandboxCodeSender(CodeSender):
    """Sends nothing; the code is known."""

    @override
    def new_code(self) -> str:
        return CODE

    @override
    def send(self, channel: Channel, address: str, code: str) -> None:
        pass

    @override
    def accepts_as_totp(self, code: str) -> bool:
        return code == CODE
