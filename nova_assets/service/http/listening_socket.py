"""Listening socket of the service: binding, its URL, and errors that name the process on a taken port."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

from nova_assets.errors import PortTaken, ServiceRefused
from nova_assets.service.http.exposure import parse_address


def bind_listening_socket(host: str, port: int) -> socket.socket:
    """Bind a listening socket.

    Raises:
        PortTaken: another process listens on the port.
        ServiceRefused: this machine has no such address, or this user may not use the port.
    """
    host_without_brackets = host.strip().removeprefix("[").removesuffix("]")
    address = (
        "127.0.0.1" if host_without_brackets.lower().rstrip(".") == "localhost" else host_without_brackets or "0.0.0.0"
    )
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unusable_address_error(host, error) from error
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(socket_address)
        bound.listen(2048)
    except OSError as error:
        bound.close()
        raise _bind_error(host, port, error) from error
    bound.setblocking(False)
    return bound


def local_service_url(listening_socket: socket.socket, host: str, tls: bool) -> str:
    """Address of a service on this socket, for clients on this machine."""
    parsed_host = parse_address(host)
    address = (
        listening_socket.getsockname()[0] if parsed_host is None or not parsed_host.is_unspecified else "127.0.0.1"
    )
    name = host if parsed_host is None and host else f"[{address}]" if ":" in address else address
    return f"{'https' if tls else 'http'}://{name}:{listening_socket.getsockname()[1]}"


def describe_process_on_port(port: int) -> str | None:
    """Description of the process that listens on a port. Only on Linux, and for processes of the same user."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                parts = line.split()
                if parts[3] == "0A" and int(parts[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{parts[9]}]")
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(d) in sockets for d in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                return f"process {process.name} ({' '.join(map(_shorten_word, command[:4])).strip()})"
    return None


def _shorten_word(word: str) -> str:
    return Path(word).name[:40] if word.startswith("/") else word[:40]


def _bind_error(host: str, port: int, error: OSError) -> PortTaken | ServiceRefused:
    if error.errno == errno.EADDRINUSE:
        return PortTaken(
            f"port {port} is taken",
            found=describe_process_on_port(port) or "an unknown process",
            expected="a free port",
            next="end that process, or use a free port: --port 0",
            port=port,
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ServiceRefused(
            f"this user may not listen on port {port}", found=str(error), expected="1024 or above", next="--port 8765"
        )
    return _unusable_address_error(host, error)


def _unusable_address_error(host: str, error: OSError) -> ServiceRefused:
    return ServiceRefused(
        f"the service cannot listen on {host!r}",
        found=error.strerror or str(error),
        expected="an address of this machine",
        next="leave out --host, or name an address that the command ip address lists",
    )
