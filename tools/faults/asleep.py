"""What stands in the environment of a planted copy: tells whether a fault is awake, and which tests reach a function.

This file is copied into the copy's site-packages and imports nothing of the package. ``NOVA_FAULT_FILE`` is a file that
all processes of a run map: the number of the fault that is awake or -1, the number of the test, and its name.
``NOVA_FAULT_REPORT`` is a file that gets a line for each function and test that reaches it.
"""

from __future__ import annotations

import builtins
import mmap
import os
from contextlib import suppress

SIZE = 4096
ASLEEP = -1

EXIT_SPOILT = 75
"""Exit code of a process that hunts and whose tests fail without a fault, too."""

_report = os.environ.get("NOVA_FAULT_REPORT")
_shared: mmap.mmap | None = None
_seen: set[str] = set()
_test = b""


def open_shared(file: str) -> None:
    """Follow this file from now on, and let processes that start from here follow it."""
    global _shared
    os.environ["NOVA_FAULT_FILE"] = file
    with open(file, "rb") as opened:
        _shared = mmap.mmap(opened.fileno(), SIZE, access=mmap.ACCESS_READ)


def write_shared(file: str, awake: int, number: int = 0, test: str = "") -> None:
    """Say which fault is awake, and which test runs."""
    encoded = awake.to_bytes(8, "little", signed=True) + number.to_bytes(8, "little") + test.encode()
    with open(file, "r+b" if os.path.exists(file) else "w+b") as opened:
        opened.write(encoded[:SIZE].ljust(SIZE, b"\0"))


def _is_awake(number: int) -> bool:
    return _shared is not None and int.from_bytes(_shared[:8], "little", signed=True) == number


def _reach(function: str) -> None:
    global _test
    if _report is None or _shared is None:
        return
    if _shared[8:16] != _test:
        _test = _shared[8:16]
        _seen.clear()
    if function not in _seen:
        _seen.add(function)
        with suppress(OSError):  # a test of a full disk, or of a user who may not write
            append(_report, f"{function}\t{_shared[16:].rstrip(bytes(1)).decode()}\n")


def append(file: str | os.PathLike[str], text: str) -> None:
    """Write a line as a whole, while others write theirs."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if "NOVA_FAULT_FILE" in os.environ:
    open_shared(os.environ["NOVA_FAULT_FILE"])
builtins.__fault__ = _is_awake  # type: ignore[attr-defined]
builtins.__reach__ = _reach  # type: ignore[attr-defined]
