"""A body is read only if it says what it is: a page of another origin can send text that says nothing or lies."""

from __future__ import annotations

import re

from gateway_stage import GatewayStage

from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.settings.gateway_settings import GatewayLimits

WITH_BODIES = [route for route in RESOURCES if route.body.media]
SENT_BY_FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")


async def test_a_body_without_its_type_or_with_a_form_s_is_refused_by_every_route() -> None:
    assert {route.method for route in WITH_BODIES} == {"POST", "PUT", "PATCH"}
    async with GatewayStage(GatewayLimits()).open() as stage:
        own_page = {"Sec-Fetch-Site": "same-origin"}
        for route in WITH_BODIES:
            if route.operation == "deliverEvent":  # its senders send what they like, and no browser's session counts
                continue
            path = re.sub(r"\{.*?\}", "nothing", route.path.replace("{revision}", "1"))
            for media in (None, "", *SENT_BY_FORMS, "application/json; charset=utf-16"):
                headers = own_page if media is None else {**own_page, "Content-Type": media}
                asked = stage.client.request(
                    route.method, path, data=b"{}", headers=headers, skip_auto_headers=["Content-Type"]
                )
                async with asked as response:
                    assert response.status == 415, (route.operation, media)
