"""The pages of the documentation: every link leads somewhere, and the index lists every page."""

import importlib
import re
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from docs.site import conf, stage
from docs.site.stage import Stage, StageError

PAGES = stage.pages_of(stage.ROOT)
FENCES = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TOCTREE = re.compile(r"^```\{toctree\}\n(?::.*\n)*\n((?:[^`\n]+\n)*)```$", re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder from which the site is built."""
    folder = tmp_path_factory.mktemp("site")
    stage.write(stage.ROOT, folder)
    return folder


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of `page`, as code hosts and MyST make them."""
    text = FENCES.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", title) for title in titles)
    slugs = (re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in plain)
    seen: Counter[str] = Counter()
    found = set()
    for slug in slugs:
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def links(page: Path) -> list[str]:
    text = FENCES.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^()\s]+)\)", text)
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def test_every_link_of_every_page_leads_to_a_page_a_heading_or_a_file(site: Path) -> None:
    wrong = []
    for page in site.rglob("*.md"):
        for link in links(page):
            path, _, fragment = link.partition("#")
            target = page.parent / path if path else page
            if not target.is_file() or (fragment and fragment not in anchors(target)):
                wrong.append(f"{page.relative_to(site)}: {link}")

    assert wrong == []
    assert len(PAGES) > 100


def test_the_index_lists_every_page_once(site: Path) -> None:
    def listed(index: str) -> list[str]:
        lists = re.findall(TOCTREE, (site / index).read_text(encoding="utf-8"))
        entries = [entry for part in lists for entry in part.splitlines()]
        return [entry.partition(" <")[2].rstrip(">") or entry for entry in entries]

    decisions = [f"decisions/{name}" for name in listed("decisions/index.md")]
    found = Counter([*listed("index.md"), *decisions, "index"])

    assert found == Counter(str(page.with_suffix("")) for page in PAGES.values())


def test_a_link_to_a_file_that_is_no_page_leads_to_a_copy(site: Path) -> None:
    text = (site / "postgresql.md").read_text(encoding="utf-8")

    assert "](files/schema/roles.py)" in text
    assert (site / "files" / "schema" / "roles.py").is_file()


def test_diagrams_are_drawn(site: Path) -> None:
    assert not any("```mermaid" in page.read_text("utf-8") for page in site.rglob("*.md"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gone](gone.md)", "docs/page.md: the link gone.md leads nowhere"),
        ("```mermaid\nflowchart LR\n```\n", "docs/page.md: the diagram has changed; draw it in"),
    ],
)
def test_what_the_site_cannot_show_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    page = PurePosixPath("docs/page.md")
    (tmp_path / "docs").mkdir()
    (tmp_path / page).write_text(text)
    made = Stage(root=tmp_path, pages={page: PurePosixPath("page.md")})

    with pytest.raises(StageError, match=re.escape(message)):
        stage.staged(made, page)


def test_links_in_examples_stay_as_they_are(tmp_path: Path) -> None:
    page = PurePosixPath("page.md")
    text = "```text\n[x](gone.md)\n```\n"
    (tmp_path / page).write_text(text)

    assert stage.staged(Stage(root=tmp_path, pages={page: page}), page) == text


def test_sections_of_docstrings_become_fields_and_indented_lines_code() -> None:
    lines = ["Return it:", "", "    x = 1", "", "Raises: A when", "that is so.", "", "End."]

    assert list(conf.fields(conf.code_blocks(lines))) == [
        "Return it::",
        "",
        "    x = 1",
        "",
        "",
        ":Raises: A when",
        "    that is so.",
        "",
        "End.",
    ]


def test_what_the_pages_of_the_python_api_document_exists() -> None:
    text = "\n".join(
        page.read_text(encoding="utf-8") for page in (stage.ROOT / "docs/site/python").glob("*.md")
    )
    modules = re.findall(r"^\.\. (?:automodule|py:currentmodule):: (\S+)$", text, re.MULTILINE)
    names = re.findall(
        r"^\.\. auto(?:class|exception|function):: (cardledger\.\S+)$", text, re.MULTILINE
    )

    assert len(modules) > 5
    for name in modules:
        importlib.import_module(name)
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
