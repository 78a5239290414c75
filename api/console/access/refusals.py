"""Refused forms: the page of each form, and what it says when the form is shown again.

A view declares with `form_on` where its form is. When fields are refused, that page is shown again
with what was typed; every other failure links back to it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

from fastapi import Request, Response

from cardledger.api.console.access.context import ConsoleContext

_OK: Final = 200

Show = Callable[[Request, ConsoleContext], Awaitable[Response]]
"""Shows the page of a form again; the page finds the refusal in the state of the request."""

View = TypeVar("View", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A refused field by its name; without a `label` the page has no field for it."""

    name: str
    message: str
    label: str | None = None
    id: str | None = None


class Refusal:
    """Why a form was refused, and what was typed into it; without a message nothing was refused.

    While a page is rendered, it notes the labels of its fields: the alert above names them so.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status: int = _OK,
        problems: Mapping[str, str] | None = None,
        sent: Mapping[str, str] | None = None,
        form: str = "",
    ) -> None:
        """Have `problems` of the fields `sent`, by their names, of one `form` of the page."""
        self.message: Final = message
        self.status: Final = status
        self.form: Final = form
        self._problems: Final = problems or {}
        self._sent: Final = sent or {}
        self._shown: Final[dict[str, Problem]] = {}

    def __bool__(self) -> bool:
        """Return whether something was refused."""
        return bool(self.message)

    @property
    def has_problems(self) -> bool:
        """Whether it is about fields."""
        return bool(self._problems)

    def typed(self, name: str, value: str, form: str = "") -> str:
        """Return what was typed into a field; `value` when its form is not the refused one."""
        return self._sent.get(name, value) if form == self.form else value

    def beside(self, name: str, label: str, form: str = "") -> str | None:
        """Return what is wrong with a field, as a sentence, and note the label that it has."""
        message = self._problems.get(name) if form == self.form else None
        if message is None:
            return None
        key = id_of(name, form)
        self._shown[name] = Problem(name=name, message=message, label=label, id=key)
        return message[:1].upper() + message[1:]

    def listed(self) -> list[Problem]:
        """Return what is wrong, once all fields of the page are rendered."""
        return [
            self._shown.get(name) or Problem(name=name, message=message)
            for name, message in self._problems.items()
        ]


def id_of(name: str, form: str = "") -> str:
    """Return the id of a field of a page that has several forms, or one."""
    return f"{form}-{name}" if form else name


@dataclass(frozen=True, slots=True, kw_only=True)
class FormPage:
    """The page of a form; names in braces, in `path` and `form`, are those of the view's path.

    `show` shows the page again. `form` is which of its forms was sent. `labels` are those of the
    fields that people fill in.
    """

    path: str
    show: Show | None = None
    form: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_list: bool = False  # It can be shown without its rows, so without reading anything.

    def address(self, request: Request) -> str:
        """Return the path of the page."""
        return self.path.format(**_quoted(request))

    def form_of(self, request: Request) -> str:
        """Return which of the forms of the page was sent."""
        return self.form.format(**_quoted(request))


def _quoted(request: Request) -> dict[str, str]:
    return {name: quote(str(value), safe=":") for name, value in request.path_params.items()}


_PAGES: Final[dict[Callable[..., Any], FormPage]] = {}


def form_on(
    path: str,
    *,
    show: Show | None = None,
    form: str = "",
    labels: Mapping[str, str] | None = None,
    is_list: bool = False,
) -> Callable[[View], View]:
    """Return a decorator that declares the page of a view's form; the route goes above it."""
    page = FormPage(path=path, show=show, form=form, labels=labels or {}, is_list=is_list)

    def declared(view: View) -> View:
        _PAGES[view] = page
        return view

    return declared


def form_page_at(view: Callable[..., Any]) -> FormPage | None:
    """Return the page that `view` declares."""
    return _PAGES.get(view)


def form_page_of(request: Request) -> FormPage | None:
    """Return the page of the form that a request was sent with; None: none is declared."""
    return _PAGES.get(request.scope["endpoint"])


def sent_in(request: Request) -> Mapping[str, str]:
    """Return the fields of a form, or the parameters of an address."""
    fields: Mapping[str, str] = getattr(request.state, "fields", request.query_params)
    return fields


def refusal_of(request: Request) -> Refusal:
    """Return the refusal that a page shows: an empty one, unless its form is shown again."""
    refusal: Refusal = getattr(request.state, "refusal", None) or Refusal()
    return refusal
