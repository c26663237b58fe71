"""Exposure of the service: who can reach it, and whether its configuration is safe. Opens no socket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from nova_assets.errors import ServiceRefused
from nova_assets.service.http.config import ServiceConfig

Network = IPv4Network | IPv6Network

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Exposure:
    """How a service is reached.

    Args:
        requires_tokens: whether each request needs a token.
        tls: whether the service terminates TLS itself.
        reachable_from_outside: whether other machines can reach the service.
        proxies: networks of the configured proxy.
        host_names: allowed host names and addresses in the ``Host`` header, in lower case.
        listens_on_all_addresses: whether the service listens on all addresses of this machine, and may be called by any
            of them.
    """

    requires_tokens: bool
    tls: bool
    reachable_from_outside: bool
    proxies: tuple[Network, ...]
    host_names: frozenset[str]
    listens_on_all_addresses: bool = False

    def is_proxy(self, address: str | None) -> bool:
        """Whether a peer is the configured proxy."""
        parsed = parse_address(address or "")
        return parsed is not None and any(parsed in network for network in self.proxies)

    @property
    def requires_proxy(self) -> bool:
        """Whether requests that bypass the proxy would travel unencrypted."""
        return self.reachable_from_outside and not self.tls


def resolve_exposure(config: ServiceConfig, has_token: bool) -> Exposure:
    """Exposure of a configured service, if it is safe.

    A loopback address is always allowed. Without tokens, every user of this machine then has all rights. A proxy or a
    public name means that other machines reach the service all the same.

    Args:
        has_token: whether at least one valid token exists.

    Raises:
        ServiceRefused: others would have all rights, or could read the traffic.
    """
    tls = _has_tls(config)
    proxies = tuple(_parse_proxy_network(text) for text in config.proxies)
    is_local = is_loopback(config.host)
    is_outside = not is_local or bool(proxies) or bool(config.public_names)
    requires_tokens = config.auth == "tokens" or (config.auth == "auto" and is_outside)
    if is_outside:
        _check_outside_access(config, requires_tokens, has_token, tls)
    host = _normalize_host(config.host)
    names = {*LOOPBACK_NAMES, *map(_normalize_host, config.public_names), *([] if is_any_address(host) else [host])}
    return Exposure(requires_tokens, tls, is_outside, proxies, frozenset(names), is_any_address(host))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address. Names other than localhost count as reachable from outside."""
    address = parse_address(_normalize_host(host))
    return _normalize_host(host) == "localhost" if address is None else address.is_loopback


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """IP address of a text, or None. An IPv4-mapped IPv6 address becomes IPv4."""
    try:
        address = ip_address(_normalize_host(text))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _check_outside_access(config: ServiceConfig, requires_tokens: bool, has_token: bool, tls: bool) -> None:
    address = config.host or "all addresses"
    what = f"the service may not listen on {address}: other machines could reach it"
    if is_loopback(config.host):
        what = "the service may not listen: other machines reach it through its proxy or public name"
    if not requires_tokens:
        raise ServiceRefused(
            what,
            found="no tokens: every caller would have all rights",
            expected="tokens, or 127.0.0.1",
            next="nova serve --auth tokens, or leave out --host",
        )
    if not has_token:
        raise ServiceRefused(
            what,
            found="no valid token",
            expected="at least one valid token",
            next="nova token add NAME --read '*'; then start the service again",
        )
    if not tls and not config.proxies:
        raise ServiceRefused(
            what,
            found="neither TLS nor a proxy that terminates it: tokens and data would travel unencrypted",
            expected="a certificate and its key, or the address of the reverse proxy",
            next="nova serve --tls-cert FILE --tls-key FILE, or --proxy ADDRESS",
        )


def _has_tls(config: ServiceConfig) -> bool:
    if bool(config.tls_cert) != bool(config.tls_key):
        raise ServiceRefused(
            "TLS needs a certificate and its key",
            found="only a certificate" if config.tls_cert else "only a key",
            expected="both; one file may contain them",
            next="nova serve --tls-cert FILE --tls-key FILE",
        )
    return bool(config.tls_cert)


def _parse_proxy_network(proxy: str) -> Network:
    try:
        network = ip_network(_normalize_host(proxy))
    except ValueError as error:
        raise ServiceRefused(
            f"the proxy {proxy!r} is neither an address nor a network",
            found=str(error),
            expected="an address or a network, such as 10.1.2.3 or 10.1.0.0/16",
            next="name the address or network of the proxy: --proxy ADDRESS",
        ) from error
    if network.prefixlen == 0:
        raise ServiceRefused(
            f"the proxy {proxy!r} contains all addresses",
            found="a network of all addresses, so that any caller could forge its address",
            expected="only the addresses of the proxy",
            next="--proxy 10.1.2.3 or --proxy 10.1.0.0/16",
        )
    return network


def is_any_address(host: str) -> bool:
    """Whether a listen address means all addresses of the machine."""
    address = parse_address(host)
    return host == "" or (address is not None and address.is_unspecified)


def _normalize_host(host: str) -> str:
    """Host in comparable form: lower case, without brackets and trailing dot."""
    return host.strip().lower().removeprefix("[").removesuffix("]").rstrip(".")


def parse_host_header(header: str) -> tuple[str, str] | None:
    """Name and port of a ``Host`` header. The port may be empty. None for an invalid header."""
    text = header.strip()
    if text.startswith("["):
        name, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            return None
        port = rest[1:]
    else:
        name, _, port = text.partition(":")
    is_invalid = (
        not name or any(c in "@/\\?#, \t" for c in name) or not (port == "" or (port.isascii() and port.isdigit()))
    )
    return None if is_invalid else (_normalize_host(name), port)


def is_allowed_host(exposure: Exposure, host_name: str, connection_addresses: Iterable[str]) -> bool:
    """Whether the service may be called by this host name. Other names indicate DNS rebinding.

    Args:
        connection_addresses: local addresses of the connection.
    """
    if host_name in exposure.host_names:
        return True
    address = parse_address(host_name)
    if address is None:
        return False
    own_addresses = [parse_address(n) for n in exposure.host_names]
    return address in own_addresses or (
        exposure.listens_on_all_addresses and address in map(parse_address, connection_addresses)
    )
