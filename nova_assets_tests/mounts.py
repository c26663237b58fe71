"""Second names of files and folders, and small disks, for tests that root runs on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def can_mount() -> bool:
    """Whether this process may mount something, and has the commands for it."""
    if os.geteuid() != 0 or sys.platform != "linux" or None in map(shutil.which, ("unshare", "mount", "umount")):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="only root may mount, with the commands unshare and mount")
"""Mark of a test that mounts something."""


@contextmanager
def bind_mount(source: Path, target: Path) -> Iterator[None]:
    """Give a file or folder a second name, as containers do."""
    with _mounted(target, "--bind", str(source)):
        yield


@contextmanager
def small_disk(target: Path, size: str) -> Iterator[None]:
    """An empty file system of this size, in memory."""
    target.mkdir(exist_ok=True)
    with _mounted(target, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield


def unmount(target: Path) -> None:
    """Unmount at once, although processes have files open there."""
    subprocess.run(["umount", "--lazy", str(target)], check=True)


@contextmanager
def _mounted(target: Path, *options: str) -> Iterator[None]:
    subprocess.run(["mount", *options, str(target)], check=True)
    try:
        yield
    finally:
        while _is_mount_point(target):
            unmount(target)


def _is_mount_point(target: Path) -> bool:
    """Whether something is mounted here. ``os.path.ismount`` does not see a second name in the same file system."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return any(line.split()[4] == str(target) for line in mounts)
