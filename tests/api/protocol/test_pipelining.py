"""Requests that are sent before the response to the request before."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.protocol.support import all_of, connection, head, numbers_of, send_in_parts
from tests.api.support import Tenant


@pytest.mark.parametrize("size", [7, 1000, 10_000_000])
def test_pipelined_requests_are_answered_in_their_order(
    root: str, tenant: Tenant, size: int
) -> None:
    body = b'{"customerType": "INDIVIDUAL", "fullName": "Ada\\r\\n\\r\\n"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    count = 60
    requests = []
    for number in range(0, count, 3):
        one, two, three = (f"X-Request-Id: {number + step}" for step in range(3))
        requests += [
            head(tenant, one, request="GET {}/config HTTP/1.1"),
            head(tenant, two, f"Content-Length: {len(body)}") + body,
            head(tenant, three, "Transfer-Encoding: chunked") + chunks,
        ]
    requests.append(head(tenant, f"X-Request-Id: {count}", "Connection: close"))
    data = b"".join(requests)

    with connection(root) as opened, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(send_in_parts, opened, data, size)
        received = all_of(opened)
        sent.result()

    assert numbers_of(received) == list(range(count + 1))
