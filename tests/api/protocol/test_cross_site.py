"""Requests that a browser sends for a page of another site."""

from uuid import uuid4

import pytest

from tests.api.support import Api, Tenant, ok, refused


@pytest.mark.parametrize("site", ["cross-site", "Cross-Site"])
def test_a_page_of_another_site_changes_nothing(root: str, tenant: Tenant, site: str) -> None:
    sent = {"Sec-Fetch-Site": site}
    with Api(root, tenant) as api:
        before = ok(api.get("/customers"))["totalCount"]
        answers = [
            api.http.post(
                "/customers", json={"customerType": "INDIVIDUAL", "fullName": "Ada"}, headers=sent
            ),
            api.http.patch("/config", json={"webhookEndpoint": None}, headers=sent),
            api.http.delete(f"/tokens/Token:{uuid4()}", headers=sent),
            api.http.post("/agents/device-codes/AAAAA-AAAAA-AAAAA/redeem", headers=sent),
            api.http.post("/quotes", json={}, headers=sent),
        ]

        for answer in answers:
            error = refused(answer, 403, "FORBIDDEN")
            assert error["details"] == {"header": "Sec-Fetch-Site"}
        assert ok(api.get("/customers"))["totalCount"] == before
        assert ok(api.http.get("/customers", headers=sent))["totalCount"] == before
        assert api.http.head("/customers", headers=sent).status_code == 200


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none", ""])
def test_other_requests_of_browsers_are_served(root: str, tenant: Tenant, site: str) -> None:
    with Api(root, tenant) as api:
        answer = api.http.post(
            "/customers",
            json={"customerType": "INDIVIDUAL", "fullName": "Ada"},
            headers={"Sec-Fetch-Site": site},
        )

    assert answer.status_code == 201
