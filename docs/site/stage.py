"""Copy the pages of the repository into the source folder of the site (`make site`).

The pages stay where a reader of the repository looks for them. Links between pages become links of
the site, files that are no pages are copied for download, and the navigation is what docs/README.md
lists, section by section.
"""

import posixpath
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]

INDEX: Final = PurePosixPath("docs/README.md")
DECISIONS: Final = PurePosixPath("docs/decisions/README.md")

_ELSEWHERE: Final[Mapping[str, str]] = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    str(INDEX): "index.md",
    str(DECISIONS): "decisions/index.md",
}
"""Pages that have another name in the site."""

_FILES: Final = PurePosixPath("files")
"""Folder of the site for files that are no pages."""

_LINK: Final = re.compile(r"\]\(([^()\s]+)\)")
_NAMED_LINK: Final = re.compile(r"\[([^][]+)\]\(([^()\s]+)\)")
_FENCE: Final = re.compile(r"^```([^`]*)$")
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_DIAGRAM: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_LEXERS: Final = {"jsonl": "json"}
"""Languages of code blocks that Pygments knows by another name."""


class StageError(Exception):
    """A page cannot be part of the site; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The pages of the site by their path in the repository, and the files that they link to."""

    root: Path
    pages: Mapping[PurePosixPath, PurePosixPath]
    files: set[PurePosixPath] = field(default_factory=set)


def pages_of(root: Path) -> dict[PurePosixPath, PurePosixPath]:
    """Return every page of the repository with its path in the site."""
    found = [root / name for name in _ELSEWHERE] + sorted((root / "docs").rglob("*.md"))
    sources = dict.fromkeys(PurePosixPath(path.relative_to(root).as_posix()) for path in found)
    return {source: _path_in_site(source) for source in sources}


def _path_in_site(source: PurePosixPath) -> PurePosixPath:
    renamed = _ELSEWHERE.get(str(source))
    if renamed is not None:
        return PurePosixPath(renamed)
    below_docs = source.relative_to("docs")
    return below_docs.relative_to("site") if below_docs.parts[0] == "site" else below_docs


def staged(stage: Stage, source: PurePosixPath) -> str:
    """Return the text of a page as the site has it.

    Raises: StageError for a link that leads nowhere, and for a diagram that is not drawn.
    """
    text = (stage.root / source).read_text(encoding="utf-8")
    if source in {INDEX, DECISIONS}:
        text += "".join(_navigation(stage, source, text))
    text = _DIAGRAM.sub(lambda block: _drawn(stage, source, block[1]), text)
    return "".join(_lines(stage, source, text))


def _lines(stage: Stage, source: PurePosixPath, text: str) -> Iterator[str]:
    """Yield the lines of a page; links are changed outside of code blocks only."""
    is_code = False
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line.rstrip())
        if fence is not None:
            is_code = not is_code
            yield f"```{_LEXERS.get(fence[1], fence[1])}\n"
        elif is_code:
            yield line
        else:
            yield _LINK.sub(lambda link: f"]({_target(stage, source, link[1])})", line)


# --- links -------------------------------------------------------------------------------------


def _target(stage: Stage, source: PurePosixPath, link: str) -> str:
    """Return where `link` of a page leads in the site."""
    path, mark, fragment = link.partition("#")
    if not path or "://" in link or link.startswith("mailto:"):
        return link
    found = _found(stage, source, path)
    if found in stage.pages:
        target = stage.pages[found]
    elif (stage.root / found).is_file():
        stage.files.add(found)
        target = _FILES / found
    else:
        raise StageError(f"{source}: the link {link} leads nowhere")
    here = stage.pages[source].parent
    return posixpath.relpath(target, here) + mark + fragment


def _found(stage: Stage, source: PurePosixPath, path: str) -> PurePosixPath:
    found = PurePosixPath(posixpath.normpath(source.parent / path))
    return found / "README.md" if (stage.root / found).is_dir() else found


# --- navigation --------------------------------------------------------------------------------


def _navigation(stage: Stage, source: PurePosixPath, text: str) -> Iterator[str]:
    """Yield a list of pages for each section of an index, in the order and words of its links."""
    first, *sections = _SECTION.split(text)
    captions, parts = ["", *sections[::2]], [first, *sections[1::2]]
    listed = {source}
    for caption, part in zip(captions, parts, strict=True):
        pages = {name: title for name, title in _linked(stage, source, part) if name not in listed}
        listed.update(pages)
        entries = [_entry(stage, source, name, title) for name, title in pages.items()]
        if entries:
            yield _toctree(caption, entries)


def _linked(stage: Stage, source: PurePosixPath, part: str) -> Iterator[tuple[PurePosixPath, str]]:
    for title, link in _NAMED_LINK.findall(part):
        path = link.partition("#")[0]
        if path and "://" not in path and (name := _found(stage, source, path)) in stage.pages:
            yield name, title


def _entry(stage: Stage, index: PurePosixPath, name: PurePosixPath, title: str) -> str:
    here = stage.pages[index].parent
    page = posixpath.relpath(stage.pages[name].with_suffix(""), here)
    return page if title.isdecimal() else f"{title} <{page}>"


def _toctree(caption: str, entries: Iterable[str]) -> str:
    options = [":hidden:", f":caption: {caption}"] if caption else [":hidden:"]
    return "\n".join(["", "```{toctree}", *options, "", *entries, "```", ""])


# --- diagrams ----------------------------------------------------------------------------------


def _drawn(stage: Stage, source: PurePosixPath, diagram: str) -> str:
    """Return the drawing of a Mermaid diagram: to draw it, the site would need a script of 3 MB.

    Raises: StageError when the diagram is not the one that was drawn.
    """
    drawing = PurePosixPath(f"docs/site/diagrams/{source.stem}.svg")
    mark = f"<!-- of {sha256(diagram.encode()).hexdigest()[:16]} -->"
    path = stage.root / drawing
    if not path.is_file() or mark not in path.read_text(encoding="utf-8"):
        raise StageError(f"{source}: the diagram has changed; draw it in {drawing}, with {mark}")
    return f"![diagram]({posixpath.relpath(drawing, source.parent)})"


# --- all of it ---------------------------------------------------------------------------------


def write(root: Path, folder: Path) -> None:
    """Write the pages of the repository at `root`, and the files that they link to."""
    stage = Stage(root=root, pages=pages_of(root))
    for source, page in stage.pages.items():
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(staged(stage, source), encoding="utf-8")
    for file in stage.files:
        path = folder / _FILES / file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, path)


def main() -> None:
    """Write the pages into the folder given as argument."""
    try:
        write(ROOT, Path(sys.argv[1]))
    except StageError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
