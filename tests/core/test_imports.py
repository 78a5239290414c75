"""Every module can be imported, in any environment that the package allows."""

from tests.import_everything import import_everything


def test_every_module_can_be_imported() -> None:
    names = import_everything()

    assert {"cardledger.api.app", "cardledger.workers.client", "cardledger.ledger.core.events"} < {
        *names
    }
