"""What a proxy reads of requests, and passes on of them and of their responses."""

from __future__ import annotations

import pytest

from noetl_stream.tools.proxy.heads import ProxyRefusal, is_interim, last_of_connection, read_request


def lines(*texts: str) -> bytes:
    return "\r\n".join((*texts, "", "")).encode()


def test_a_request_is_passed_on_as_its_server_expects_it_and_its_connection_ends_with_it() -> None:
    sent = lines(
        *("POST http://me:secret@Example.com:8080/a/b?c=%20#d HTTP/1.1", "Host: another.example", "Accept: */*"),
        *("Proxy-Connection: keep-alive", "proxy-authorization: Basic eA==", "Connection: keep-alive", "X-Name: ü"),
    )
    read = read_request(sent)
    assert (read.host, read.port) == ("example.com", 8080)
    passed = ("Host: example.com:8080", "Accept: */*", "X-Name: ü", "Connection: close")
    assert read.head == lines("POST /a/b?c=%20 HTTP/1.1", *passed)
    with_login = lines("POST http://example.com:8080/a/b?c=%20 HTTP/1.1", "Proxy-Authorization: Basic eQ==", *passed)
    assert read.for_proxy(b"Basic eQ==") == with_login


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [("example.com:443", "example.com", 443), ("[::1]:5432", "::1", 5432), ("127.1:80", "127.1", 80)],
)
def test_a_connection_is_asked_for_by_host_and_port(target: str, host: str, port: int) -> None:
    read = read_request(lines(f"CONNECT {target} HTTP/1.1", f"Host: {target}"))
    assert (read.host, read.port, read.head) == (host, port, b"")
    assert read.for_proxy(b"") == lines(f"CONNECT {target} HTTP/1.1", f"Host: {target}")


def test_a_url_without_port_and_path_means_the_root_at_port_80() -> None:
    read = read_request(lines("GET http://example.com HTTP/1.1"))
    assert (read.port, read.head) == (80, lines("GET / HTTP/1.1", "Host: example.com", "Connection: close"))


@pytest.mark.parametrize(
    "first",
    [
        *("GET / HTTP/1.1", "GET https://example.com/ HTTP/1.1", "GET ftp://example.com/ HTTP/1.1", "GET"),
        *("CONNECT example.com HTTP/1.1", "CONNECT example.com:0 HTTP/1.1", "CONNECT example.com:70000 HTTP/1.1"),
        *("CONNECT [::1:80 HTTP/1.1", "CONNECT :80 HTTP/1.1", "GET http:///a HTTP/1.1", "GET http://a/ b HTTP/1.1"),
        *(
            "CONNECT 8.8.8.8\t:443 HTTP/1.1",
            "GET http://%31%32%37.0.0.1/ HTTP/1.1",
            "GET http://[fe80::1%25lo]/ HTTP/1.1",
        ),
        *("PRI * HTTP/2.0", "GET http://exämple.com/ HTTP/1.1", "GET http://a:x/ HTTP/1.1", ""),
    ],
)
def test_a_request_that_is_not_for_a_proxy_is_answered_with_an_explanation(first: str) -> None:
    with pytest.raises(ProxyRefusal) as refused:
        read_request(lines(first))
    assert refused.value.status == 400
    assert refused.value.answer().startswith(b"HTTP/1.1 400 Bad Request: this ")


def test_a_response_says_that_its_connection_ends_whatever_its_server_says() -> None:
    sent = lines("HTTP/1.1 200 OK", "Connection: keep-alive", "Keep-Alive: timeout=5", "Content-Length: 2")
    assert last_of_connection(sent) == lines("HTTP/1.1 200 OK", "Content-Length: 2", "Connection: close")
    assert not is_interim(sent)
    assert is_interim(lines("HTTP/1.1 100 Continue"))
