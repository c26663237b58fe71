"""Folder that belongs to one server instance at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from nova_assets.masking import get_logger

log = get_logger("nova_assets.service")


def claim_instance_folder(folder: Path, instances: int) -> Path:
    """First folder that no other instance has claimed, for the rest of this process. A replacement claims the folder of
    the instance that it replaces, since a claim ends with its process, even if the process is killed.

    Args:
        folder: folder of all instances.
        instances: number of instances. There are twice as many folders, because old and new instances run at the same
            time while the new ones start.
    """
    names = [f"instance-{n}" for n in range(1, 2 * instances + 1)]
    for name in names:
        if _claim(folder, name):
            return folder / name
    return folder / names[-1]


def _claim(folder: Path, name: str) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f"{name}.claim", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        log.warning("the folder of an instance cannot be claimed: %s", error)
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True  # the descriptor stays open, and with it the claim
