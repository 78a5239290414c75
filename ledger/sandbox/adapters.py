"""All adapters of the sandbox together, for the composition root that needs them all."""

from datetime import timedelta

from cardledger.ledger.ports import Adapters
from cardledger.ledger.sandbox.account_verifier import SandboxAccountVerifier
from cardledger.ledger.sandbox.code_sender import SandboxCodeSender
from cardledger.ledger.sandbox.directory import SandboxDirectory
from cardledger.ledger.sandbox.exchange_rates import SandboxExchangeRates
from cardledger.ledger.sandbox.funding_instructions import SandboxFundingInstructions
from cardledger.ledger.sandbox.funding_rail import SandboxFundingRail
from cardledger.ledger.sandbox.identity_verifier import SandboxIdentityVerifier
from cardledger.ledger.sandbox.issuer import SandboxIssuer
from cardledger.ledger.sandbox.uma_network import SandboxUmaNetwork
from cardledger.ledger.storage.secrets.key_ring import KeyRing


def adapters(keys: KeyRing, *, delay: timedelta) -> Adapters:
    """Return the sandbox's adapter of every port; `delay` is how long its late answers take."""
    return Adapters(
        issuer=SandboxIssuer(keys, delay=delay),
        identity_verifier=SandboxIdentityVerifier(),
        code_sender=SandboxCodeSender(),
        account_verifier=SandboxAccountVerifier(),
        funding_rail=SandboxFundingRail(delay=delay),
        reference_rates=SandboxExchangeRates(),
        directory=SandboxDirectory(),
        uma_network=SandboxUmaNetwork(),
        funding_instructions=SandboxFundingInstructions(),
    )
