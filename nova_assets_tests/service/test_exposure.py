"""Who may be let in: where a service may listen, and under which names it may be called."""

from __future__ import annotations

from typing import Any

import pytest

from nova_assets.errors import ServiceRefused, SettingsError
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.http.exposure import is_allowed_host, is_loopback, parse_host_header, resolve_exposure

TLS = {"tls_cert": "cert.pem", "tls_key": "key.pem"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
)
def test_this_machine_alone_may_always_be_served(host: str) -> None:
    for has_token in (True, False):
        assert not resolve_exposure(ServiceConfig(host=host), has_token).requires_tokens
        assert resolve_exposure(ServiceConfig(host=host, auth="tokens"), has_token).requires_tokens
        assert not resolve_exposure(ServiceConfig(host=host, auth="none"), has_token).requires_tokens


OUTSIDE = [
    "0.0.0.0",
    "::",
    "",
    "192.168.1.7",
    "10.0.0.1",
    "nova.example.org",
    "127.1",
    "localhost.example.org",
    "fe80::1",
]


@pytest.mark.parametrize("host", OUTSIDE)
@pytest.mark.parametrize(
    ("given", "has_token", "missing"),
    [
        ({"auth": "none", **TLS}, True, "no tokens: every caller"),
        (TLS, False, "no valid token"),
        ({}, True, "neither TLS nor a proxy"),
    ],
)
def test_any_other_address_is_refused_without(host: str, given: dict[str, Any], has_token: bool, missing: str) -> None:
    with pytest.raises(ServiceRefused) as refused:
        resolve_exposure(ServiceConfig(host=host, **given), has_token)
    error = refused.value
    assert missing in str(error.found) and error.expected and "nova " in str(error.next)
    assert (host or "all addresses") in error.what and error.code == "NOVA-SERVICE-REFUSED"


@pytest.mark.parametrize("host", OUTSIDE)
@pytest.mark.parametrize("way", [TLS, {"proxies": ("10.1.2.3",)}])
def test_any_other_address_may_be_served_with_tokens_and_tls_or_a_proxy(host: str, way: dict[str, Any]) -> None:
    found = resolve_exposure(ServiceConfig(host=host, **way), has_token=True)
    assert found.requires_tokens and found.reachable_from_outside
    assert found.requires_proxy == (way is not TLS)


@pytest.mark.parametrize("way", [{"proxies": ("127.0.0.1",)}, {"public_names": ("nova.example.org",)}])
def test_a_proxy_or_a_public_name_opens_this_machines_own_address_too(way: dict[str, Any]) -> None:
    with pytest.raises(ServiceRefused, match="through its proxy or public name"):
        resolve_exposure(ServiceConfig(auth="none", **way), has_token=True)
    with pytest.raises(ServiceRefused, match="no valid token"):
        resolve_exposure(ServiceConfig(**way), has_token=False)
    proxies = {"proxies": ("127.0.0.1",), **way}
    assert resolve_exposure(ServiceConfig(**proxies), has_token=True).requires_tokens


@pytest.mark.parametrize("proxy", ["0.0.0.0/0", "::/0", "everybody", "10.1.2.3/8", "nova.example.org", ""])
def test_a_proxy_is_an_address_or_a_network_and_not_everybody(proxy: str) -> None:
    with pytest.raises(ServiceRefused) as refused:
        resolve_exposure(ServiceConfig(proxies=(proxy,)), has_token=True)
    assert "--proxy" in str(refused.value.next)


def test_who_is_the_proxy() -> None:
    found = resolve_exposure(ServiceConfig(proxies=("10.1.0.0/16", "fd00::5")), has_token=True)
    assert found.is_proxy("10.1.200.3") and found.is_proxy("::ffff:10.1.200.3") and found.is_proxy("fd00::5")
    assert not any(map(found.is_proxy, ["10.2.0.1", "127.0.0.1", "fd00::6", None, "testclient"]))


@pytest.mark.parametrize("half", [{"tls_cert": "cert.pem"}, {"tls_key": "key.pem"}])
def test_half_of_tls_is_none(half: dict[str, Any]) -> None:
    with pytest.raises(ServiceRefused, match="certificate and its key"):
        resolve_exposure(ServiceConfig(**half), has_token=True)


def test_the_names_that_a_service_goes_by() -> None:
    found = resolve_exposure(ServiceConfig(host="10.0.0.1", public_names=("Nova.Example.org",), **TLS), has_token=True)
    for name in ("localhost", "127.0.0.1", "::1", "10.0.0.1", "nova.example.org"):
        assert is_allowed_host(found, name, []), name
    for name in ("evil.example.org", "10.0.0.2", "nova.example.org.evil.net", "127.0.0.1.nip.io", "0.0.0.0"):
        assert not is_allowed_host(found, name, ["10.0.0.2"]), name


def test_on_all_addresses_it_goes_by_the_one_that_is_asked() -> None:
    found = resolve_exposure(ServiceConfig(host="0.0.0.0", **TLS), has_token=True)
    assert is_allowed_host(found, "192.168.1.7", ["192.168.1.7"])
    assert not is_allowed_host(found, "192.168.1.8", ["192.168.1.7"])
    assert not is_allowed_host(found, "evil.example.org", ["192.168.1.7"])


@pytest.mark.parametrize(
    ("header", "means"),
    [
        ("localhost:8765", ("localhost", "8765")),
        ("LOCALHOST.", ("localhost", "")),
        ("[::1]:80", ("::1", "80")),
        ("[::1]", ("::1", "")),
        ("", None),
        ("::1", None),
        ("user@localhost", None),
        ("localhost/x", None),
        ("localhost:80:80", None),
        ("a, b", None),
        ("[::1", None),
        ("localhost:²", None),
    ],
)
def test_what_a_host_header_says(header: str, means: tuple[str, str] | None) -> None:
    assert parse_host_header(header) == means


def test_loopback_is_no_matter_of_looks() -> None:
    assert not any(map(is_loopback, ["127.1", "0", "2130706433", "0x7f000001", "localhost.localdomain", "128.0.0.1"]))


@pytest.mark.parametrize(
    "wrong",
    [{"port": -1}, {"port": 65536}, {"auth": "maybe"}, {"max_requests": 0}, {"max_body": -1}, {"token_seconds": 60}],
)
def test_a_configuration_that_cannot_be_meant(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        ServiceConfig(**wrong)
    assert refused.value.expected
