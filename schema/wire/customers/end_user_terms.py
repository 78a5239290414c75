"""The terms that end users accept."""

from typing import Annotated

from pydantic import Field

from cardledger.schema.wire.common import Response


class EndUserTermsResource(Response):
    """The current end-user terms; a consent names their `version`."""

    version: Annotated[str, Field(examples=["2026-01"])]
    url: Annotated[str, Field(examples=["https://example.com/end-user-terms"])]
