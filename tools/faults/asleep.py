"""What stands in the environment of a planted copy: tells whether a fault is awake, and which tests reach it.

This file is copied into the copy's site-packages and imports nothing of the package. ``NOVA_FAULT`` is the number of
the fault that is awake. ``NOVA_FAULT_REPORT`` is a file that gets a line for each fault and test that reaches it.
"""

from __future__ import annotations

import builtins
import os

_awake = int(os.environ.get("NOVA_FAULT") or -1)
_report = os.environ.get("NOVA_FAULT_REPORT")
_last: dict[int, str | None] = {}


def _is_awake(number: int) -> bool:
    if _report is not None:
        test = os.environ.get("PYTEST_CURRENT_TEST")
        if _last.get(number, "") != test:
            _last[number] = test
            _write(f"{number}\t{(test or '').rpartition(' ')[0]}\n")
    return number == _awake


def _write(line: str) -> None:
    assert _report is not None
    descriptor = os.open(_report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


builtins.__fault__ = _is_awake  # type: ignore[attr-defined]
