"""Who sent a webhook: providers' documented examples byte for byte; what is forged, cut, late or repeated."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.trigger.notification import Notification
from noetl_stream.trigger.signatures import (
    MAX_SECRETS,
    Accepted,
    Refused,
    Verification,
    WebhookDelivery,
    challenge_in,
    secrets_in,
    verify,
)

NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
SECRET = "whsec_test_secret"

GITHUB = Verification(form="github", credential="hook")
STRIPE = Verification(form="stripe", credential="hook")
SLACK = Verification(form="slack", credential="hook")
PLAIN = Verification(form="hmac", credential="hook", header="x-signature", prefix="sha256=")
TIMED = replace(PLAIN, timestamp_header="x-time", prefix="", encoding="base64", algorithm="sha512")
TOKEN = Verification(form="token", credential="hook", header="authorization")

BODY = b'{"id": "evt_1", "event_id": "Ev1", "amount": 7}'


def sha256(signed: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def delivery(body: bytes = BODY, **headers: str) -> WebhookDelivery:
    return WebhookDelivery(
        method="POST", headers={name.replace("_", "-"): text for name, text in headers.items()}, body=body
    )


def stripe(at_s: int = NOW_S, body: bytes = BODY, secret: str = SECRET) -> WebhookDelivery:
    return delivery(body, stripe_signature=f"t={at_s},v1={sha256(f'{at_s}.'.encode() + body, secret)},v0=aa")


def slack(at_s: int = NOW_S, body: bytes = BODY, secret: str = SECRET) -> WebhookDelivery:
    signature = "v0=" + sha256(f"v0:{at_s}:".encode() + body, secret)
    return delivery(body, x_slack_request_timestamp=str(at_s), x_slack_signature=signature)


def timed(at_s: int = NOW_S, body: bytes = BODY, secret: str = SECRET) -> WebhookDelivery:
    digest = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha512).digest()
    return delivery(body, x_time=str(at_s), x_signature=base64.b64encode(digest).decode())


def github(body: bytes = BODY, secret: str = SECRET) -> WebhookDelivery:
    return delivery(body, x_hub_signature_256="sha256=" + sha256(body, secret))


def plain(body: bytes = BODY, secret: str = SECRET) -> WebhookDelivery:
    return delivery(body, x_signature="sha256=" + sha256(body, secret))


def test_the_example_in_githubs_documentation_is_verified() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    sent = delivery(b"Hello, World!", x_hub_signature_256=signature)
    secret = "It's a Secret to Everybody"
    assert isinstance(verify(sent, GITHUB, [secret], NOW_MS), Accepted)
    assert isinstance(verify(replace(sent, body=b"Hello, World?"), GITHUB, [secret], NOW_MS), Refused)


def test_the_example_in_slacks_documentation_is_verified() -> None:
    body = (
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        "&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    sent = delivery(
        body.encode(),
        x_slack_request_timestamp="1531420618",
        x_slack_signature="v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    )
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert isinstance(verify(sent, SLACK, [secret], 1531420618_000), Accepted)
    late = verify(sent, SLACK, [secret], NOW_MS)
    assert isinstance(late, Refused) and "300 s" in late.reason


SIGNED = [(GITHUB, github()), (STRIPE, stripe()), (SLACK, slack()), (PLAIN, plain()), (TIMED, timed())]


@pytest.mark.parametrize(("how", "sent"), SIGNED, ids=lambda one: getattr(one, "form", ""))
def test_a_forged_cut_or_unsigned_delivery_is_refused(how: Verification, sent: WebhookDelivery) -> None:
    assert isinstance(verify(sent, how, [SECRET], NOW_MS), Accepted)
    assert isinstance(verify(sent, how, ["another secret"], NOW_MS), Refused)
    assert isinstance(verify(sent, how, [], NOW_MS), Refused)
    assert isinstance(verify(replace(sent, body=sent.body + b" "), how, [SECRET], NOW_MS), Refused)
    assert isinstance(verify(replace(sent, headers={}), how, [SECRET], NOW_MS), Refused)
    for name, text in sent.headers.items():
        signed = text.partition(",v0")[0]
        for wrong in (signed[:-1], signed[: len(signed) // 2], "", "0" + signed, "ä" + signed):
            assert isinstance(
                verify(replace(sent, headers={**sent.headers, name: wrong}), how, [SECRET], NOW_MS), Refused
            )


@pytest.mark.parametrize(("how", "made"), [(STRIPE, stripe), (SLACK, slack), (TIMED, timed)])
def test_a_delivery_signed_too_long_ago_or_in_the_future_is_refused(how: Verification, made: object) -> None:
    assert callable(made)
    for at_s, is_taken in ((NOW_S - 300, True), (NOW_S + 300, True), (NOW_S - 301, False), (NOW_S + 301, False)):
        assert isinstance(verify(made(at_s), how, [SECRET], NOW_MS), Accepted) is is_taken
    assert isinstance(verify(made(NOW_S - 61), replace(how, tolerance_s=60), [SECRET], NOW_MS), Refused)


def test_an_unsigned_time_does_not_help_an_attacker() -> None:
    old = stripe(NOW_S - 3600)
    header = old.headers["stripe-signature"].replace(f"t={NOW_S - 3600}", f"t={NOW_S}")
    assert isinstance(verify(delivery(BODY, stripe_signature=header), STRIPE, [SECRET], NOW_MS), Refused)


@pytest.mark.parametrize("made", [github, stripe, slack, plain, timed])
def test_two_secrets_are_valid_while_one_replaces_the_other(made: object) -> None:
    assert callable(made)
    how = next(how for how, sent in SIGNED if sent.headers.keys() == made().headers.keys() and sent == made())
    for secret in ("the old one", "the new one"):
        assert isinstance(verify(made(secret=secret), how, ["the old one", "the new one"], NOW_MS), Accepted)


def test_a_provider_that_signs_with_two_secrets_is_believed_by_either() -> None:
    signed = f"{NOW_S}.".encode() + BODY
    both = f"t={NOW_S},v1={sha256(signed, 'unknown')},v1={sha256(signed)}"
    assert isinstance(verify(delivery(stripe_signature=both), STRIPE, [SECRET], NOW_MS), Accepted)


def test_a_token_is_compared_completely() -> None:
    for text, is_taken in ((f"Bearer {SECRET}", True), (SECRET, True), (SECRET[:-1], False), ("Bearer ", False)):
        assert isinstance(verify(delivery(authorization=text), TOKEN, [SECRET], NOW_MS), Accepted) is is_taken
    named = replace(TOKEN, header="x-token")
    assert isinstance(verify(delivery(x_token=SECRET), named, [SECRET], NOW_MS), Accepted)
    assert isinstance(verify(delivery(x_token=f"Bearer {SECRET}"), named, [SECRET], NOW_MS), Refused)


def identity(sent: WebhookDelivery, how: Verification) -> str:
    found = verify(sent, how, [SECRET], NOW_MS)
    assert isinstance(found, Accepted), found
    return found.identity


def test_a_repeated_delivery_is_known_by_what_is_signed() -> None:
    assert identity(stripe(NOW_S - 9), STRIPE) == identity(stripe(NOW_S), STRIPE)
    fewer_left = stripe(body=BODY.replace(b"7", b"6"))
    assert identity(fewer_left, STRIPE) == identity(stripe(), STRIPE), "the id of the event is the same"
    assert identity(slack(NOW_S - 9), SLACK) == identity(slack(NOW_S), SLACK)
    again = replace(github(), headers={**github().headers, "x-github-delivery": "drawn by an attacker"})
    assert identity(again, GITHUB) == identity(github(), GITHUB)
    assert identity(github(b"another"), GITHUB) != identity(github(), GITHUB)
    assert identity(timed(NOW_S), TIMED) != identity(timed(NOW_S - 1), TIMED), "the sender says it is another one"


def test_without_a_signature_the_sender_names_what_it_repeats() -> None:
    sent = delivery(authorization=SECRET)
    assert identity(sent, TOKEN) == ""
    assert identity(replace(sent, headers={**sent.headers, "idempotency-key": "7"}), TOKEN) == "7"
    open_to_all = Verification(form="none")
    assert (identity(delivery(), open_to_all), identity(delivery(idempotency_key="7"), open_to_all)) == ("", "7")


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": "same-site", "origin": "https://other.example:1"}, False),
        ({"origin": "https://other.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
        ({"sec_fetch_site": "none"}, True),
        ({"sec_fetch_site": "same-origin", "origin": "https://flows.example"}, True),
        ({}, True),
    ],
)
def test_an_unsigned_delivery_from_a_page_of_another_site_is_refused(headers: dict[str, str], accepted: bool) -> None:
    sent = delivery(host="flows.example", **headers)
    assert isinstance(verify(sent, Verification(form="none"), (), NOW_MS), Accepted) is accepted


def test_slack_gets_its_challenge_back() -> None:
    asked = delivery(b'{"type": "url_verification", "challenge": "3eZbrw1a"}')
    assert (challenge_in(asked, SLACK), challenge_in(asked, GITHUB)) == ("3eZbrw1a", None)
    for body in (b"[]", b"text", b'{"type": "event_callback", "challenge": "x"}', b'{"type": "url_verification"}'):
        assert challenge_in(delivery(body), SLACK) is None


def test_a_credential_holds_one_secret_or_several() -> None:
    assert secrets_in("one") == secrets_in({"secret": "one"}) == ("one",)
    assert secrets_in({"secrets": ["one", "two"], "secret": "three"}) == ("one", "two")
    assert secrets_in({"secrets": [str(one) for one in range(99)]}) == tuple(map(str, range(MAX_SECRETS)))
    for value in ({}, {"secret": ""}, {"secret": 7}, {"secrets": [7, ""]}, 7, None):
        assert secrets_in(value) == ()


def test_a_delivery_sent_by_a_trigger_is_verified_by_a_trigger() -> None:
    [sign, _] = notification_of("webhook: { url: 'https://example.org', credential: hook }").tasks
    given = {"message": {"name": "Ünal"}, "secret": {"secrets": [SECRET, "the old one"]}}
    exec(sign["code"], given)
    made: Any = given["result"]
    sent = delivery(made["body"].encode(), x_noetl_timestamp=made["at"], x_noetl_signature=made["signature"])
    how = replace(PLAIN, header="x-noetl-signature", timestamp_header="x-noetl-timestamp")
    assert isinstance(verify(sent, how, [SECRET], int(made["at"]) * 1000), Accepted)
    assert isinstance(verify(sent, how, [SECRET], int(made["at"]) * 1000 + 301_000), Refused)


def notification_of(way: str) -> Notification:
    text = (
        "apiVersion: noetl.io/v2\nkind: Trigger\nmetadata: { name: a, path: a }\n"
        f"spec: {{ on: {{ execution: {{ path: b }} }}, notify: {{ {way} }} }}"
    )
    found = check_document(text, {}).trigger
    assert found is not None and found.notification is not None
    return found.notification
