"""Looks once a second whether a process of the deployment has a deleted file of the catalog open."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from nova_assets_tests.catalog_soak.deployment import Deployment
from nova_assets_tests.soak import processes

FINDING = "no process has a deleted file of the catalog open"


class Watch(threading.Thread):
    """The last user of a catalog removes the log and closes it a moment later. So two looks in a row have to see it,
    and a stopped process is looked at when it continues."""

    def __init__(self, deployment: Deployment, is_over: threading.Event) -> None:
        super().__init__(name="watch", daemon=True)
        self._deployment = deployment
        self._is_over = is_over

    def run(self) -> None:
        before: set[tuple[int, str, int]] = set()
        while not self._is_over.wait(1.0):
            now = set(self._deleted_files())
            for pid, path, _ in before & now:
                kind = f"{_name_of(pid)} {os.path.basename(path)}"
                self._deployment.tally.problem(FINDING, kind)
            before = now
            self._deployment.tally.count("looks at open files", "looks")

    def _deleted_files(self) -> Iterator[tuple[int, str, int]]:
        """Process, path and inode of each deleted file of the catalog that is open."""
        prefix = str(self._deployment.catalog)
        for process in processes.of_home(self._deployment.home):
            folder = Path(f"/proc/{process.pid}/fd")
            try:
                if (Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]) == "T":
                    continue
                for descriptor in os.listdir(folder):
                    path = os.readlink(folder / descriptor)
                    if path.startswith(prefix) and path.endswith(" (deleted)"):
                        yield process.pid, path, os.stat(folder / descriptor).st_ino
            except OSError:  # it has ended, or has closed the file
                continue


def _name_of(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({b' '.join(command[1:6]).decode(errors='replace')})"
