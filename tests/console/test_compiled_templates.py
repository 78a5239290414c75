"""Compiled templates are kept for the next process, and never outlive what they were made from."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from cardledger.api.console.html.compiled_templates import CompiledTemplates


class Counting(Environment):
    """An environment of a new process that counts what it compiles."""

    compiled = 0

    def compile(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
        self.compiled += 1
        return super().compile(*arguments, **options)  # type: ignore[call-overload]


@pytest.fixture
def html(tmp_path: Path) -> Path:
    """A directory with modules and one template."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "formats.py").write_text("# filters")
    (tmp_path / "templates" / "page.html").write_text("Hello {{ name }}")
    return tmp_path


def rendered(html: Path) -> tuple[str, int]:
    """Return the page as a new process renders it, and how many templates it compiles."""
    templates = html / "templates"
    environment = Counting(
        loader=FileSystemLoader(templates), bytecode_cache=CompiledTemplates(templates)
    )
    return environment.get_template("page.html").render(name="Ada"), environment.compiled


def test_a_template_is_compiled_once_for_all_processes(html: Path) -> None:
    assert rendered(html) == ("Hello Ada", 1)
    assert rendered(html) == ("Hello Ada", 0)


def cut(size: int) -> Callable[[Path], None]:
    """Return what leaves `size` bytes of the file of a template."""

    def damage(html: Path) -> None:
        [file] = (html / "templates" / "__pycache__").iterdir()
        file.write_bytes(file.read_bytes()[:size])

    return damage


@pytest.mark.parametrize(
    "change",
    [
        lambda html: (html / "formats.py").write_text("# other filters"),
        *(cut(size) for size in (0, 1, 5, 20, 30, 60, 80, -10)),
        lambda html: shutil.rmtree(html / "templates" / "__pycache__"),
    ],
)
def test_it_is_compiled_again_after_a_change(html: Path, change: Callable[[Path], None]) -> None:
    rendered(html)

    change(html)

    assert rendered(html) == ("Hello Ada", 1)


def test_a_changed_template_is_shown(html: Path) -> None:
    rendered(html)

    (html / "templates" / "page.html").write_text("Good night {{ name }}")

    assert rendered(html) == ("Good night Ada", 1)


def test_a_directory_that_cannot_be_written_is_no_failure(html: Path) -> None:
    (html / "templates" / "__pycache__").write_text("not a directory")

    assert rendered(html) == ("Hello Ada", 1)
    assert rendered(html) == ("Hello Ada", 1)
