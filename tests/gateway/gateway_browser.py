"""A browser that uses a gateway."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any

from openapi_checks import Answered, Described


class Browser:
    """A page of the gateway's own origin, in a browser that has the session's cookie once it has signed in.

    Attributes:
        headers: What the browser sends with each request of the page.
        cookie: Sent with all that goes to the gateway.
    """

    def __init__(self, url: str, api: Described) -> None:
        self._api = api
        self.headers = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
        self.cookie = ""

    async def call(self, operation: str, **given: Any) -> Answered:
        cookie = {"Cookie": self.cookie} if self.cookie else {}
        headers = {**self.headers, **cookie, **given.pop("headers", {})}
        answered = await self._api.call(operation, headers=headers, **given)
        if "Set-Cookie" in answered.headers:
            ((name, morsel),) = SimpleCookie(answered.headers["Set-Cookie"]).items()
            self.cookie = f"{name}={morsel.value}"
        return answered

    async def sign_in(self, code: str) -> Answered:
        answered = await self.call("signIn", body={"code": code})
        if answered.status == 201:
            self.headers["X-CSRF-Token"] = answered.body["csrf_token"]
        return answered
