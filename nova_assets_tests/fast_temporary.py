"""Temporary files of the tests lie in memory where there is room: on a disk, each commit of SQLite waits for the disk.

A new SQLite file of 30 tables takes 36 ms on a disk and 1 ms in memory.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 6 * 2**30
"""Room for what the tests write, with a margin: less than 2 GiB was seen. Containers often have 64 MiB there."""


def keep_temporary_files_in_memory() -> None:
    """Let this process, and all that it starts, put temporary files into memory. TMPDIR, if set, is left as it is."""
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # Python reads the variable once


def _has_room(folder: Path) -> bool:
    try:
        free = os.statvfs(folder)
        available_kib = next(
            int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line
        )
    except (OSError, StopIteration):
        return False
    is_usable = os.access(folder, os.W_OK | os.X_OK) and not free.f_flag & os.ST_NOEXEC
    return is_usable and min(free.f_bavail * free.f_frsize, available_kib * 1024 // 2) >= NEEDED_BYTES
