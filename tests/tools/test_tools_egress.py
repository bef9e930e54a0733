"""The egress guard: which addresses tasks may connect to, whatever their kind."""

from __future__ import annotations

import pytest

from noetl_stream.settings.egress import EgressRules, egress_rules, read_denied
from noetl_stream.tools.egress import Egress, ForbiddenAddress, Reach

PORT = 5432


def allows(allow: str, address: str, reach: Reach = Reach.ALLOWED, deny: str = "") -> bool:
    """Whether a task may connect to the address."""
    rules = egress_rules(allow)
    denied = read_denied("a test", {"a test": deny} if deny else {})
    try:
        Egress(EgressRules(rules.allowed, denied)).check(address, PORT, reach=reach)
    except ForbiddenAddress:
        return False
    return True


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_an_address_that_is_not_public_is_closed(address: str) -> None:
    assert not allows("none", address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_a_public_address_is_open(address: str) -> None:
    assert allows("none", address)


@pytest.mark.parametrize(
    ("opened", "address", "is_open"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "::ffff:127.0.0.1", True),
        ("loopback", "0.0.0.0", False),
        ("loopback", "10.0.0.1", False),
        ("private", "10.0.0.1", True),
        ("private", "172.31.0.1", True),
        ("private", "192.168.0.1", True),
        ("private", "fd00::1", True),
        ("private", "127.0.0.1", False),
        ("private", "169.254.169.254", False),
        ("10.2.0.0/16, 169.254.169.254", "10.2.3.4", True),
        ("10.2.0.0/16, 169.254.169.254", "169.254.169.254", True),
        ("10.2.0.0/16, 169.254.169.254", "10.3.0.1", False),
        ("10.2.0.1:5433", "10.2.0.1", False),
        ("10.2.0.1:5432", "10.2.0.1", True),
        # Link-local and metadata addresses: not by any network around them.
        ("169.254.0.0/16", "169.254.169.254", False),
        ("0.0.0.0/0", "169.254.169.254", False),
        ("0.0.0.0/0", "168.63.129.16", False),
        ("0.0.0.0/0", "0.0.0.0", False),
        ("::/0", "::", False),
        ("private", "fd00:ec2::254", False),
        ("private", "fd00:ec2::253", False),
        ("private, fd00:ec2::254", "fd00:ec2::254", True),
        ("::/0", "fe80::1%1", False),
        ("100.64.0.0/10", "100.100.100.200", False),
        ("64:ff9b::/96", "64:ff9b::a9fe:a9fe", False),
    ],
)
def test_the_operator_allows_networks(opened: str, address: str, is_open: bool) -> None:
    assert allows(opened, address) == is_open


@pytest.mark.parametrize(
    ("denied", "address", "is_open"),
    [
        ("127.0.0.1:5432", "127.0.0.1", False),
        ("127.0.0.1:5432", "::ffff:127.0.0.1", False),
        ("127.0.0.1:5433", "127.0.0.1", True),
        ("loopback", "::1", False),
        ("8.8.0.0/16", "8.8.8.8", False),
    ],
)
def test_a_denied_address_is_closed_though_it_is_allowed_or_public(denied: str, address: str, is_open: bool) -> None:
    assert allows("0.0.0.0/0, ::/0", address, deny=denied) == is_open


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "fd12::1", "8.8.8.8"])
def test_an_operators_credential_reaches_the_host_it_names(address: str) -> None:
    assert allows("none", address, Reach.OWN)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "0.0.0.0", "fd00:ec2::254"])
def test_no_credential_reaches_a_metadata_service(address: str) -> None:
    assert not allows("none", address, Reach.OWN)


@pytest.mark.parametrize(("address", "is_open"), [("8.8.8.8", True), ("127.0.0.1", False), ("10.1.2.3", False)])
def test_a_redirect_from_the_internet_stays_there(address: str, is_open: bool) -> None:
    assert allows("loopback, private", address, Reach.PUBLIC) == is_open


async def test_the_reason_says_what_an_operator_can_do() -> None:
    with pytest.raises(ForbiddenAddress, match=r"127.0.0.1 is not public; .* with NOETL_EGRESS_ALLOW"):
        await Egress().addresses("localhost", PORT)


async def test_a_name_that_the_operator_allows_may_be_private_and_never_a_metadata_service() -> None:
    egress = Egress(egress_rules("api.local, localhost"))
    assert egress.allowed_name("API.local.") == "api.local"
    egress.check("10.1.2.3", PORT, name="api.local")
    with pytest.raises(ForbiddenAddress, match="metadata service"):
        egress.check("169.254.169.254", PORT, name="api.local")
    assert "127.0.0.1" in await egress.addresses("localhost", PORT)


def test_a_socket_is_reached_in_the_folders_that_the_operator_names() -> None:
    egress = Egress(egress_rules("/run/postgresql"))
    egress.check_socket("/run/postgresql/.s.PGSQL.5432")
    egress.check_socket("/elsewhere/.s.PGSQL.5432", Reach.OWN)
    for path in ("/run/.s.PGSQL.5432", "/run/postgresql/../.s.PGSQL.5432", "/run/postgresql/sub/.s.PGSQL.5432"):
        with pytest.raises(ForbiddenAddress, match="is a Unix socket"):
            egress.check_socket(path)
