"""Configuration of Sphinx for the documentation site (`make site`)."""

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

project = "cardledger"
version = release = importlib.metadata.version("cardledger")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
root_doc = "index"

myst_heading_anchors = 4
highlight_language = "none"
default_role = "code"  # Docstrings have names in single backticks.
suppress_warnings = ["misc.highlighting_failure"]  # Examples with "…" are not valid JSON.

autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"cardledger {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_permalinks_icon = "#"
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#0b5d51",
        "color-brand-content": "#0b6b5d",
        "color-brand-visited": "#0b6b5d",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fd0bd",
        "color-brand-content": "#5fd0bd",
        "color-brand-visited": "#5fd0bd",
    },
}

_WIRE_TYPE: Final = re.compile(r"[~\w.]*Annotated\[[~\w. |]+, [~\w.]*FieldInfo\([^)]*\)\]")
_SECTION: Final = re.compile(r"^(Shape|Units|Raises|Source): (.*)$")


class Application(Protocol):
    """What this configuration needs of Sphinx, which has its own environment."""

    def connect(self, event: str, callback: Callable[..., object]) -> int:
        """Call `callback` at each `event`."""


def setup(app: Application) -> None:
    """Have docstrings read as this project writes them."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)


def _process(*arguments: object) -> None:
    lines = arguments[-1]
    assert isinstance(lines, list)
    lines[:] = fields(code_blocks(lines))


def _signature(*arguments: object) -> tuple[str | None, object]:
    """Return a signature, and what is returned, with a type of the wire by its name."""
    signature, returned = arguments[-2:]
    return (_WIRE_TYPE.sub("NetworkEvent", str(signature)) if signature else None), returned


def fields(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a docstring with its sections (docs/style.md) as fields of a list."""
    is_field = False
    for line in lines:
        section = _SECTION.match(line)
        if section is not None:
            if not is_field:
                yield ""
            is_field = True
            yield f":{section[1]}: {section[2]}"
        elif is_field and line.strip():
            yield f"    {line.strip()}"
        else:
            is_field = False
            yield line


def code_blocks(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a docstring; what is indented below a colon is code."""
    following = [*lines[1:], "", ""]
    for place, line in enumerate(lines):
        is_code = not following[place] and following[place + 1].startswith("    ")
        yield f"{line}:" if is_code and line.endswith(":") and line[-2:] != "::" else line
