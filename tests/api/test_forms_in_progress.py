"""Large forms that arrive at the same time: what they occupy is what has arrived of them."""

from contextlib import ExitStack

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.ingestion_limits import UPLOADS_OF_PLATFORM
from cardledger.api.uploads.limits import CUSTOMERS_FILE, FORM_REST
from tests.api.protocol.support import connection, head, one_of, statuses_of
from tests.api.support import Api, Tenant, new_tenant, serving, url_of
from tests.api.test_documents import upload
from tests.connection_guard import GuardedApp
from tests.files import pdf_of
from tests.waiting import eventually

_PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'


def beginning(tenant: Tenant, path: str, length: int) -> bytes:
    """Return the first 100,000 bytes of a form that is said to have `length`."""
    sent = head(tenant, f"Content-Length: {length}", request=f"POST {{}}{path} HTTP/1.1")
    return sent.replace(b"application/json", b"multipart/form-data; boundary=b") + (
        _PART + b"x" * (100_000 - len(_PART))
    )


def test_forms_that_are_declared_and_not_sent_keep_no_other_out(api_config: ApiConfig) -> None:
    slow = [new_tenant(api_config.database_url) for _ in range(2)]
    app = create_app(api_config)
    with serving(GuardedApp(app)) as served, ExitStack() as held:
        url, progress = url_of(served), app.state.services.uploads
        for tenant in slow:
            opened = held.enter_context(connection(url))
            opened.sendall(beginning(tenant, "/customers/bulk/csv", CUSTOMERS_FILE + FORM_REST))
        eventually(lambda: len(progress._files) == len(slow))
        with Api(url, new_tenant(api_config.database_url)) as api:
            upload(api, api.customer()["id"], pdf_of(2_000_000))

        assert 2 * 100_000 <= progress._files.total() <= 2 * 131_072


def test_a_form_that_does_not_fit_is_refused_when_it_begins(api_config: ApiConfig) -> None:
    tenant = new_tenant(api_config.database_url)
    app = create_app(api_config)
    with serving(GuardedApp(app)) as served, Api(url_of(served), tenant) as api:
        holder = api.customer()["id"]
        occupied = UPLOADS_OF_PLATFORM - 1_000_000
        app.state.services.uploads.begin(tenant.platform_id, occupied)
        with connection(api.root) as opened:
            opened.sendall(beginning(tenant, "/documents", 2_000_000))
            answer = one_of(opened)
        upload(api, holder, pdf_of(500_000))

    assert statuses_of(answer) == [429]
