"""Files in which the instances of a service share their metrics.

prometheus_client keeps them in the folder of the variable ``PROMETHEUS_MULTIPROC_DIR``, and never opens them again. If
they were deleted from outside, the metrics of the process would be invisible until it ends. Here, a process then
continues with new files. Its counts start at zero again, as after a restart.
"""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import values

from nova_assets.masking import get_logger
from nova_assets.service.own_folder import OwnFolder

log = get_logger("nova_assets.service")

SHARED_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Variable with the folder in which instances share their metrics. It must be set before prometheus_client is loaded.
"""


class SharedMetricsFiles:
    """This process's files in the shared folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own_folder = OwnFolder.share(folder)
        self._generation = 0
        self._owner_pid = os.getpid()
        self._seen: set[str] = set()

    def process_identifier(self) -> str:
        """Last part of the names of the files: process id, and number of the set of files."""
        pid = os.getpid()
        return f"{pid}-{self._generation}" if self._generation and pid == self._owner_pid else str(pid)

    def ensure(self) -> bool:
        """Create the folder if it is missing, and begin new files if one was deleted. Returns whether the folder can be
        used.
        """
        if os.getpid() != self._owner_pid:  # forked
            self._generation, self._owner_pid, self._seen = 0, os.getpid(), set()
        try:
            self._own_folder.ensure()
        except OSError as error:
            log.warning("the folder of the shared metrics cannot be created: %s", error)
            return False
        if self._seen <= self._existing_files():
            return True
        log.warning("files of the shared metrics were deleted in %s: counts start at zero again", self.folder)
        drop_gauges(os.getpid(), self.folder)
        self._generation += 1
        self._seen = set()
        return True

    def remember_files(self) -> None:
        """Remember the files that exist now, so that ``ensure`` notices when one of them is deleted."""
        self._seen |= self._existing_files()

    def _existing_files(self) -> set[str]:
        return {file.name for file in self.folder.glob(f"*_{self.process_identifier()}.db")}


def drop_gauges(pid: int, folder: Path) -> None:
    """Remove the gauges of a process from the shared metrics. Its counters stay."""
    for pattern in (f"gauge_live*_{pid}.db", f"gauge_live*_{pid}-*.db"):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)


def _share_metrics() -> SharedMetricsFiles | None:
    """Let prometheus_client use files of this module; None if the metrics are not shared."""
    folder = os.environ.get(SHARED_FOLDER_VARIABLE)
    if not folder:
        return None
    files = SharedMetricsFiles(Path(folder))
    files.ensure()
    values.ValueClass = values.MultiProcessValue(files.process_identifier)  # type: ignore[no-untyped-call]
    return files


shared_files = _share_metrics()
"""Files of this process; None if the metrics are not shared."""
