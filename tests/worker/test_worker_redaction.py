"""Secrets are found in every way they are written, and nothing else is touched (LANGUAGE §11)."""

from __future__ import annotations

import base64
import html
import io
import json
import logging
import quopri
import re
import string
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.secrets.credential import HIDDEN, LONGEST_PATTERN, MAX_SECRETS_HIDDEN
from noetl_stream.telemetry.structured_logs import configure
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.worker.secrets.redaction import ToolRedactor, hide_in_logs

SECRET = "Pa55/wörd+\"'\\x &=<%€\U0001f511"


def hiding(*credentials: Any) -> ToolRedactor:
    redactor = ToolRedactor()
    for credential in credentials:
        redactor.learn(credential)
    return redactor


def textwrap_at(width: int, text: str, end: str = "\n") -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


ALONE = set(string.ascii_letters + string.digits)


def octal(sign: str) -> str:
    return sign if sign.isascii() else "".join(f"\\{byte:03o}" for byte in sign.encode())


WAYS = {
    "as it is": SECRET,
    "in a URL": quote(SECRET, safe=""),
    "in a path": quote(SECRET),
    "in a form": quote_plus(SECRET),
    "in a lax URL": quote(SECRET, safe="/+'&=%"),
    "in a URL of small letters": quote(SECRET, safe="").lower().replace("pa55", "Pa55"),
    "in JSON": json.dumps(SECRET, ensure_ascii=False),
    "in ASCII JSON": json.dumps(SECRET),
    "in our JSON": msgspec.json.encode(SECRET).decode(),
    "in JSON in JSON": json.dumps(json.dumps({"a": SECRET})),
    "in JSON that escapes slashes": json.dumps(SECRET).replace("/", "\\/"),
    "in Python": repr(SECRET),
    "in Python's bytes": ascii(SECRET),
    "in HTML": html.escape(SECRET),
    "in HTML as numbers": "".join(sign if sign in ALONE else f"&#{ord(sign)};" for sign in SECRET),
    "in HTML as hexadecimal numbers": "".join(sign if sign in ALONE else f"&#x{ord(sign):02X};" for sign in SECRET),
    "in a URL in a URL": quote(quote(SECRET, safe=""), safe=""),
    "in mail": quopri.encodestring(SECRET.encode()).decode(),
    "in UTF-8 of Python's bytes": repr(SECRET.encode())[2:-1],
    "in UTF-8 of a shell": "".join(map(octal, SECRET)),
    "behind backslashes of a shell": re.sub(r"([!-/<-?\\ ])", r"\\\1", SECRET),
}


@pytest.mark.parametrize("written", WAYS.values(), ids=list(WAYS))
def test_a_secret_is_found_however_it_is_written(written: str) -> None:
    assert re.fullmatch(r"before \W*a?\W*\*\*\*\W* after", hiding(SECRET).text(f"before {written} after"))


@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:", "Bearer "])
@pytest.mark.parametrize("after", ["", "1", "12", "123"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_is_found_in_base64_with_any_surroundings(before: str, after: str, encode: Any) -> None:
    encoded = encode(f"{before}{SECRET}{after}".encode()).decode()
    hidden = hiding(SECRET).text(f"Basic {encoded}")
    assert HIDDEN in hidden
    left = max(len(piece) for piece in hidden.removeprefix("Basic ").split(HIDDEN))
    assert left <= len(base64.b64encode(before.encode() + b"..."))


ENCODED = {
    "hexadecimal": SECRET.encode().hex(),
    "capital hexadecimal": SECRET.encode().hex().upper(),
    "hexadecimal of a dump": SECRET.encode().hex(" "),
    "hexadecimal of a certificate": SECRET.encode().hex(":").upper(),
    "hexadecimal of .NET": SECRET.encode().hex("-").upper(),
    "numbers": json.dumps(list(SECRET.encode())),
    "base64 of PowerShell": base64.b64encode(SECRET.encode("utf-16-le")).decode(),
    "base64 of PowerShell after a character": base64.b64encode(f"x{SECRET}".encode("utf-16-le")).decode(),
    "base32": base64.b32encode(SECRET.encode()).decode(),
    "base32 after other bytes": base64.b32encode(f"ab{SECRET}cd".encode()).decode(),
    "reversed": SECRET[::-1],
    "wrapped after 7 characters": textwrap_at(7, SECRET),
    "wrapped base64": textwrap_at(12, base64.b64encode(SECRET.encode()).decode()),
    "base64 wrapped as mail has it": textwrap_at(10, base64.b64encode(SECRET.encode()).decode(), "\r\n"),
    "wrapped and indented": textwrap_at(6, SECRET, "\n    "),
    "wrapped and continued": textwrap_at(6, SECRET, "\\\n  "),
    "wrapped base64 in mail": textwrap_at(12, base64.b64encode(SECRET.encode()).decode(), "=\n"),
    "returned in the middle": textwrap_at(7, SECRET, "\r"),
    "linked in the middle": f"{SECRET[:6]}\x1b]8;;http://a\x07{SECRET[6:]}",
    "coloured in the middle": f"{SECRET[:4]}\x1b[1;31m{SECRET[4:9]}\x1b[0m{SECRET[9:]}",
    "with a NUL after each character": "\0".join(SECRET),
}


@pytest.mark.parametrize("written", ENCODED.values(), ids=list(ENCODED))
def test_a_secret_is_found_in_encodings_and_with_interruptions(written: str) -> None:
    hidden = hiding(SECRET).text(f"<{written}>")
    assert HIDDEN in hidden
    assert max(len(piece) for piece in re.split(r"\*\*\*|\W", hidden)) <= 5, "only the bytes beside it are left"
    redactor = hiding(SECRET)
    assert HIDDEN in str(redactor.value({"a": [written]}))


def test_a_text_of_many_lines_without_a_secret_is_not_touched() -> None:
    text = "one\r\ntwo\x1b[0m\n\0three" * 100
    assert hiding(SECRET, "two-three-four").text(text) == text


@given(st.text(min_size=4, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_is_left_as_it_is_in_any_text(secret: str, before: str, after: str) -> None:
    hidden = hiding(secret).text(before + secret + after)
    assert HIDDEN in hidden
    assert secret not in hidden.replace(HIDDEN, "\0")


@pytest.mark.parametrize("first", ["-", "\\", '"', "\n", "é", "\U0001f511"])
def test_a_row_of_backslashes_is_read_once_for_a_secret_that_begins_with_a_sign(first: str) -> None:
    """Read once for each of its backslashes, this one would take days."""
    secret, row = f"{first}s3cret-value", "\\" * 4_000_000
    escaped = json.dumps(json.dumps(secret))[3:-3]
    assert hiding(secret).text(f"{row}s3cret {escaped}") == f"{row}s3cret {HIDDEN}"


@given(st.lists(st.sampled_from("\\\"' ab\n"), min_size=4, max_size=60).map("".join))
def test_a_secret_of_awkward_signs_is_found_soon(secret: str) -> None:
    hidden = hiding(secret).text(secret + "\\" * 200)
    assert HIDDEN in hidden
    assert secret not in hidden.replace(HIDDEN, "\0")


def test_ordinary_text_is_not_touched() -> None:
    text = "Pa55 is not the password, nor is wörd"
    assert hiding(SECRET).text(text) is text
    value = {"rows": [{"a": 1, "b": [True, None, "text"]}]}
    assert hiding(SECRET).value(value) is value


def test_values_are_searched_in_texts_keys_and_numbers() -> None:
    redactor = hiding("s3cret-value", {"pin": 918273})
    value = {"a": ["<s3cret-value>", {"s3cret-value": 1}], "b": 918273, "c": 9182730, "d": "pin 918273", "e": True}
    hidden = {"a": ["<***>", {"***": 1}], "b": "***", "c": 9182730, "d": "pin ***", "e": True}
    assert redactor.value(value) == hidden


def test_names_and_addresses_in_a_credential_are_not_secrets() -> None:
    credential = {"host": "shop.example", "Port": 5432, "username": "anna", "database": "shop", "password": "pa55word"}
    text = "anna@shop.example:5432/shop pa55word"
    assert hiding(credential).text(text) == "anna@shop.example:5432/shop ***"


def test_nested_members_are_secrets() -> None:
    redactor = hiding({"header": {"X-Key": "key-value-1"}, "list": ["key-value-2"], "flag": True, "none": None})
    assert redactor.text("key-value-1 key-value-2 True None") == "*** *** True None"


def test_the_password_of_an_address_is_a_secret_by_itself() -> None:
    redactor = hiding("postgresql://ann:pa%2Fss@db.example/shop")
    assert redactor.text("pa/ss and pa%2Fss at db.example") == "*** and *** at db.example"
    assert redactor.text("postgresql://ann:pa%2Fss@db.example/shop") == "***"


def test_a_text_that_is_not_an_address_is_a_secret_as_a_whole() -> None:
    assert hiding("http://[broken").text("at http://[broken") == "at ***"


def test_a_secret_too_short_to_recognize_is_left_alone() -> None:
    assert hiding("abc", {"password": "xyz"}).text("abc xyz") == "abc xyz"
    assert hiding("abcd").text("abcd") == "***"


def test_a_secret_that_holds_another_goes_first() -> None:
    assert hiding("secret", "secret-and-more").text("secret-and-more, secret") == "***, ***"


def test_each_line_of_a_key_is_hidden_when_they_are_put_onto_one() -> None:
    lines = ["-----BEGIN KEY-----", "MIIEvQIBADANBg", "kqhkiG9w0BAQEF", "x"]
    assert hiding("\n".join(lines)).text(" ".join(lines)) == "*** *** *** x"
    assert hiding("\n".join(lines)).text("\\n".join(lines)) == "***"


def test_a_very_long_secret_is_found_as_it_is() -> None:
    secret = "0123456789/" * (LONGEST_PATTERN // 10)
    assert hiding(secret).text(f"<{secret}>") == "<***>"


def test_a_piece_of_a_secret_at_the_cut_of_a_message_is_hidden() -> None:
    redactor = hiding("0123456789abcdef")
    assert redactor.cut_text("answered 400: 0123456789") == "answered 400: ***"
    assert redactor.cut_text("answered 400: 01234567…") == "answered 400: ***…"
    assert redactor.cut_text("…89abcdef was refused") == "…*** was refused"
    assert redactor.cut_text("answered 0123") == "answered 0123"


def test_a_result_and_a_failure_are_hidden_in_all_their_parts() -> None:
    redactor = hiding("s3cret-value")
    result = redactor.result(ToolResult(["s3cret-value"], {"a": "s3cret-value"}, "out s3cret-value"))
    assert result == ToolResult(["***"], {"a": "***"}, "out ***")
    error = ErrorInfo("sql", "it is s3cret-value", code="s3cret-value", retryable=True)
    failure = redactor.failure(
        ToolFailure(error, result="s3cret-value", helper={"message": "s3cret-value", "n": 1}, output="s3cret-value")
    )
    assert failure.error == ErrorInfo("sql", "it is ***", code="***", retryable=True)
    assert (failure.result, failure.helper, failure.output) == ("***", {"message": "***", "n": 1}, "***")


def test_a_value_that_is_not_json_is_searched_too() -> None:
    assert hiding("s3cret-value").value([{1, 2}, "s3cret-value", ("s3cret-value",)]) == [{1, 2}, "***", ["***"]]


def test_the_latest_of_very_many_secrets_are_hidden() -> None:
    redactor = hiding("first secret", *(f"secret {number:05}" for number in range(MAX_SECRETS_HIDDEN - 1)))
    redactor.learn("first secret")
    redactor.learn("one more secret")
    assert redactor.text("first secret, secret 00000, secret 00001") == "***, secret 00000, ***"


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines_are_hidden_with_their_facts_and_tracebacks(form: Any) -> None:
    before, stream = logging.getLogger().handlers[:], io.StringIO()
    configure("info", form, stream)
    redactor = ToolRedactor()
    show = hide_in_logs(redactor)
    log = logging.getLogger("noetl_stream.test")
    redactor.learn('s3cret "value"')
    try:
        try:
            raise ValueError('s3cret "value"')
        except ValueError:
            log.exception("it is %s", 's3cret "value"', extra={"fact": 's3cret "value"'})
        hidden = stream.getvalue()
        show()
        log.info('s3cret "value"')
    finally:
        logging.getLogger().handlers = before
    assert "s3cret" not in hidden
    assert hidden.count(HIDDEN) >= 3
    assert "s3cret" in stream.getvalue()
