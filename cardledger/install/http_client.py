"""A caller of our own API over HTTP, as a platform's backend would be one."""

import json
from http import HTTPStatus
from typing import Any, Final, Self

import urllib3

from cardledger.config.errors import FAILURE, USAGE, CommandError

_INVALID_INPUT: Final = "INVALID_INPUT"
_TIMEOUT: Final = urllib3.Timeout(connect=5.0, read=30.0)


class HttpApi:
    """Calls with the credentials of one platform; safe to share between threads."""

    def __init__(self, base_url: str, client_id: str, client_secret: str) -> None:
        self._base_url: Final = base_url
        self._headers: Final = urllib3.make_headers(basic_auth=f"{client_id}:{client_secret}")
        self._http: Final = urllib3.PoolManager(timeout=_TIMEOUT, retries=False, maxsize=8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.clear()

    def get(self, path: str) -> dict[str, Any]:
        """Return the resource at `path`, below the base URL."""
        return self._call("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send `body` and return the answer."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Change the resource at `path` and return it."""
        return self._call("PATCH", path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = self._http.request(
                method,
                self._base_url + path,
                body=None if body is None else json.dumps(body),
                headers=headers,
            )
        except urllib3.exceptions.HTTPError as error:
            raise CommandError(f"{method} {path} was not answered: {error}") from None
        content = json.loads(answer.data or b"{}")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            message = content.get("message", answer.data.decode(errors="replace")[:200])
            # The options of the command are the cause of a request that is not valid.
            code = USAGE if content.get("code") == _INVALID_INPUT else FAILURE
            raise CommandError(
                f"{method} {path} was answered {answer.status}: {message}", code=code
            )
        assert isinstance(content, dict), content
        return content
