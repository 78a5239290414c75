"""The fields of a page as a browser has them: what is in each, and what is said about it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Self

from typing_extensions import override


@dataclass(slots=True)
class Field:
    """A field by what a person sees of it; `wrong` is the text that describes it as not valid."""

    value: str = ""
    label: str = ""
    is_invalid: bool = False
    described_by: list[str] = field(default_factory=list)
    wrong: str = ""


class Fields(HTMLParser):
    """Fields by their ids, and the text of the alert."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, Field] = {}
        self.alert = ""
        self._text: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self._within: list[tuple[str, dict[str, str]]] = []

    @classmethod
    def of_page(cls, page: str) -> Self:
        """Return the fields of the HTML of a page."""
        made = cls()
        made.feed(page)
        for name, each in made.of.items():
            each.label = made._labels.get(name, "").strip()
            if each.is_invalid:
                each.wrong = " ".join(made._text[key].strip() for key in each.described_by)
        made.alert = " ".join(made.alert.split())
        return made

    def filled(self) -> dict[str, str]:
        """Return what is in each field."""
        return {name: each.value for name, each in self.of.items()}

    def wrong(self) -> dict[str, str]:
        """Return what is said of each field that is marked as not valid."""
        return {name: each.wrong for name, each in self.of.items() if each.is_invalid}

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "option" and "selected" in found:
            self.of[self._select()].value = found["value"]
        if tag in {"input", "select"} and "id" in found:
            self.of[found["id"]] = Field(
                value=found.get("value", ""),
                is_invalid=found.get("aria-invalid") == "true",
                described_by=found.get("aria-describedby", "").split(),
            )
        if tag not in {"input", "meta", "link", "img"}:
            self._within.append((tag, found))

    @override
    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop()[0] != tag:
            pass

    @override
    def handle_data(self, data: str) -> None:
        for tag, found in self._within:
            if "id" in found:
                self._text[found["id"]] = self._text.get(found["id"], "") + data
            if tag == "label" and "for" in found:
                self._labels[found["for"]] = self._labels.get(found["for"], "") + data
            if found.get("role") == "alert" and "hidden" not in found:
                self.alert += data

    def _select(self) -> str:
        return next(found["id"] for tag, found in reversed(self._within) if tag == "select")
