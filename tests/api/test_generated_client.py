"""A generated Python client: complete, importable, and with short names."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cardledger.api.ingestion.bodies import NDJSON
from tests.api.documents import document, text

generator = pytest.importorskip(
    "openapi_python_client", reason="needs openapi-python-client, of the extra `dev`"
)

settings = pytest.importorskip("openapi_python_client.config")

PACKAGE = "generated_cardledger_client"
MAX_MODELS = 500
MAX_NAME_LENGTH = 40


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a package that was generated from the document, which can be imported."""
    folder = tmp_path_factory.mktemp("client")
    source = folder / "openapi.json"
    source.write_text(text(), encoding="utf-8")
    config = settings.Config.from_sources(
        settings.ConfigFile(
            post_hooks=[],
            # The generator has no models for NDJSON; it passes bytes on.
            content_type_overrides={NDJSON: "application/octet-stream"},
        ),
        settings.MetaType.NONE,
        document_source=source,
        file_encoding="utf-8",
        overwrite=False,
        output_path=folder / PACKAGE,
    )
    problems = generator.generate(config=config)
    assert [f"{problem.header}: {problem.detail}" for problem in problems] == []
    sys.path.insert(0, str(folder))
    try:
        yield folder / PACKAGE
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def models(client: Path) -> ModuleType:
    return importlib.import_module(f"{client.name}.models")


def test_it_has_fewer_than_500_models(client: Path) -> None:
    modules = [path for path in (client / "models").glob("*.py") if path.stem != "__init__"]

    assert len(document()["components"]["schemas"]) / 2 < len(modules) < MAX_MODELS


def test_no_class_or_module_has_a_long_name(client: Path) -> None:
    names = [path.stem for path in client.rglob("*.py")]
    for path in client.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names += [node.name for node in tree.body if isinstance(node, ast.ClassDef)]

    assert sorted(name for name in names if len(name) > MAX_NAME_LENGTH) == []


def test_every_operation_has_a_function_that_can_be_imported(client: Path) -> None:
    modules = [path for path in (client / "api").rglob("*.py") if path.stem != "__init__"]
    documented = [
        operation
        for item in document()["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict)
    ]

    assert len(modules) == len(documented)
    for path in modules:
        importlib.import_module(".".join(path.relative_to(client.parent).with_suffix("").parts))


def test_the_example_of_a_customer_is_read_as_an_individual(models: ModuleType) -> None:
    [example] = document()["components"]["schemas"]["IndividualCustomer"]["examples"]

    page = models.CustomerPage.from_dict({"data": [example], "hasMore": False, "totalCount": 1})

    [customer] = page.data
    assert isinstance(customer, models.IndividualCustomer)
    assert customer.kyc_status is models.KycStatus.APPROVED
    sent = customer.to_dict()
    times = {"createdAt", "updatedAt"}  # Written with another offset.
    assert set(sent) == set(example)
    assert {name: sent[name] for name in set(sent) - times} == {
        name: example[name] for name in set(example) - times
    }


def test_the_example_of_a_card_transaction_has_its_status_as_an_enum(models: ModuleType) -> None:
    [example] = document()["components"]["schemas"]["CardTransaction"]["examples"]

    transaction = models.CardTransaction.from_dict(example)

    assert transaction.status is models.CardTransactionStatus.SETTLED
    assert transaction.to_dict()["settledAmount"] == example["settledAmount"]
