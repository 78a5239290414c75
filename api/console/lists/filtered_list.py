"""Lists with filters: the page of each, which a filter that is refused leaves without rows."""

from collections.abc import Callable
from typing import Any, Final

from fastapi import Request, Response

from cardledger.api.console import navigation
from cardledger.api.console.access.context import ConsoleContext
from cardledger.api.console.access.refusals import View, form_on
from cardledger.api.console.html import rendering
from cardledger.api.console.lists.filters import Sent


class FilteredList:
    """A list at `path`, whose template extends `filtered.html`.

    What the form of the filters shows is in `values`, so that it is there without a row being read.
    """

    def __init__(
        self,
        path: str,
        template: str,
        *,
        part: navigation.Part,
        **values: Any,  # noqa: ANN401 - whatever the form shows
    ) -> None:
        """Have a page that `template` makes, in `part` of the navigation."""
        self.path: Final = path
        self.template: Final = template
        self._part: Final = part
        self._values: Final = values

    @property
    def view(self) -> Callable[[View], View]:
        """The decorator of the view that lists; the route goes above it.

        Filters that the view does not take are shown again with what is wrong, and no row.
        """
        return form_on(self.path, show=self.page, is_list=True)

    async def page(
        self,
        request: Request,
        call: ConsoleContext,
        *,
        api: rendering.ApiCall | rendering.Command | None = None,
        **rows: Any,  # noqa: ANN401 - whatever the template shows
    ) -> Response:
        """Return the page with `rows`, which it needs unless a filter was refused."""
        return await rendering.page(
            request,
            self.template,
            call=call,
            part=self._part,
            sent=Sent.of(request),
            api=api,
            **self._values,
            **rows,
        )
