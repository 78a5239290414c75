"""Templates: Jinja2 with every value escaped, and an error for a name that is not known."""

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cardledger import __version__
from cardledger.api.console import ROOT, api_path, navigation
from cardledger.api.console.access import refusals, sessions
from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.console.html import assets, formats, shown_json
from cardledger.api.console.html.compiled_templates import CompiledTemplates
from cardledger.api.console.html.headers import HEADERS
from cardledger.api.console.mode import ConsoleMode
from cardledger.api.http.in_flight import HEADER as KEY_HEADER
from cardledger.api.http.request_context import public_root, services_of
from cardledger.schema.wire.common import rfc3339

TEMPLATES: Final = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """A request of the API and its answer, which a page shows; `path` is below the base path.

    With a `body` it is a POST; `key` is the Idempotency-Key that it was made with, so that the
    command repeats it and applies nothing twice. `selected` is a filter of `jq`, for what the API
    has no filter of. `note` says how `document` differs from the answer.
    """

    path: str
    document: Any
    client_id: str
    root: str
    body: Any = None
    key: str | None = None
    selected: str | None = None
    note: str | None = None

    @property
    def url(self) -> str:
        """The address of the request."""
        return f"{self.root}{api_path(self.path)}"

    @property
    def curl(self) -> str:
        """The command that makes the request; it asks for the secret, which it does not have."""
        command = f"curl -u {quoted(self.client_id)} {quoted(self.url)}"
        if self.selected is not None:
            return f"{command} | jq {quoted(f'.data |= map(select({self.selected}))')}"
        if self.body is None:
            return command
        if self.key is not None:
            command += f" -H {quoted(f'{KEY_HEADER}: {self.key}')}"
        body = quoted(json.dumps(self.body, ensure_ascii=False))
        return f"{command} -H 'Content-Type: application/json' -d {body}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The command whose answer a page shows, where the API has none; `note` as of `ApiCall`."""

    command: str
    document: Any
    note: str | None = None

    @property
    def curl(self) -> str:
        """The command, as a shell takes it."""
        return self.command


def with_filters(
    path: str,
    sent: Mapping[str, str],
    moments: Mapping[str, datetime | None] | None = None,
    **names: str,
) -> str:
    """Return `path` of the API with the filters of a page, by their names there: `state="state"`.

    Each of `names` is a parameter of the API, with that of the page; `moments` are times by the
    names of the API, which takes them in another form.
    """
    filters = {api: sent[name] for api, name in names.items() if sent.get(name)}
    filters |= {api: rfc3339(at) for api, at in (moments or {}).items() if at is not None}
    if not filters:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(filters, safe=':')}"


def api_call(  # noqa: PLR0913 - each by name
    request: Request,
    call: ConsoleContext,
    path: str,
    document: Any = None,  # noqa: ANN401 - JSON
    *,
    body: Any = None,  # noqa: ANN401 - JSON
    key: str | None = None,
    selected: str | None = None,
    note: str | None = None,
) -> ApiCall:
    """Return the request of the API at `path`, which answers `document`; with `body`, a POST.

    `key` is the Idempotency-Key that the POST was made with. `selected` is a condition in the
    language of `jq` on what the answer lists. `note` says how `document` differs from the answer.
    """
    return ApiCall(
        path=path,
        document=document,
        client_id=call.session.client_id,
        root=public_root(request),
        body=body,
        key=key,
        selected=selected,
        note=note,
    )


async def page(  # noqa: PLR0913 - what every page has, by name
    request: Request,
    template: str,
    *,
    call: ConsoleContext | None = None,
    part: navigation.Part | None = None,
    status: int | None = None,
    api: ApiCall | Command | None = None,
    **values: Any,  # noqa: ANN401 - whatever the template shows
) -> Response:
    """Return the page that `template` makes of `values`; `part` is marked in the navigation.

    When a form of it was refused, it has the status of that, an alert, and nothing of the API.
    """
    services = services_of(request)
    refused = refusals.refusal_of(request)
    shown = None if refused else api
    json = await services.loop_turns.run(shown_json.shown(shown.document)) if shown else None
    parts = (
        environment()
        .get_template(template)
        .generate(
            call=call,
            form_token=None if call is None else sessions.form_token(call.session, call.keys),
            may_act=call is not None and call.console.mode is ConsoleMode.ACT,
            part=part,
            parts=navigation.parts(is_sandbox=services.is_sandbox),
            is_sandbox=services.is_sandbox,
            now=services.clock(),
            api=shown,
            json=json,
            refused=refused,
            path=request.url.path,
            **values,
        )
    )
    html = await services.loop_turns.run(_joined(parts))
    return Response(
        html, status_code=status or refused.status, headers=HEADERS, media_type="text/html"
    )


def _joined(parts: Iterator[str]) -> Generator[None, None, str]:
    """Return the text of `parts`, in steps: a long page takes ten milliseconds."""
    whole: list[str] = []
    for part in parts:
        whole.append(part)
        yield
    return "".join(whole)


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        bytecode_cache=CompiledTemplates(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        asset=assets.url_of,
        changed=_changed,
        id_of=refusals.id_of,
        root=ROOT,
        version=__version__,
        without=_without,
    )
    made.filters.update(
        attribute=formats.attribute,
        clock=formats.clock,
        decimal=formats.decimal,
        duration=formats.duration,
        iso=formats.iso,
        money=formats.money,
        short_id=formats.short_id,
        visible=formats.visible,
        words=formats.words,
    )
    return made


def _changed(sent: Mapping[str, str], **changed: str) -> dict[str, str]:
    """Return the parameters of a link that changes some of those of this page."""
    return {**sent, **changed}


def _without(sent: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in sent.items() if key != name}


def quoted(text: str) -> str:
    """Return `text` as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"
