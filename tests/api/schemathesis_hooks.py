"""How Schemathesis writes and reads NDJSON, of which the document describes one line."""

import json
from typing import Any

import schemathesis

_NDJSON = "application/x-ndjson"


@schemathesis.serializer(_NDJSON)
def write(_: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ANN401 - any JSON
    return json.dumps(value).encode() + b"\n"


@schemathesis.deserializer(_NDJSON)
def read(_: schemathesis.DeserializationContext, response: Any) -> Any:  # noqa: ANN401 - any JSON
    first, *_ = response.content.splitlines()
    return json.loads(first)
