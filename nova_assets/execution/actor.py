"""The person or process that changes definitions, as versions and removals name it."""

from __future__ import annotations

import getpass
import socket
from functools import lru_cache


@lru_cache(maxsize=1)
def current_actor() -> str:
    """User and host of this process, such as ``ann@builder``."""
    return f"{current_user()}@{socket.gethostname()}"


def current_user() -> str:
    """User of this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name, as in containers
        return "unknown"
