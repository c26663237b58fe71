"""What a system is to the benchmark: a table that is loaded, upserted, kept up and read."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

Answer = list[str]
"""What a reading of a whole table gives: the count of its rows first, then sums over all columns."""


class CannotDo(Exception):
    """The system has no such thing; the tables say ``-``."""


@dataclass(frozen=True)
class Layout:
    """How keys come: any (``uniform``), or of the latest days (``clustered``)."""

    name: Literal["uniform", "clustered"]

    @property
    def key(self) -> tuple[str, ...]:
        return ("day", "id") if self.clustered else ("id",)

    @property
    def clustered(self) -> bool:
        return self.name == "clustered"


EVERY = 5
"""After so many commits compaction runs, where a system leaves that to its user: Hudi's own default
(hoodie.compact.inline.max.delta.commits, https://hudi.apache.org/docs/configurations)."""


class System(ABC):
    """One table of one system.

    Args:
        folder: everything of the table is in there.
        layout: how keys come.
        rows: about so many the table will hold.
    """

    name: ClassVar[str]
    digest: ClassVar[Literal["spark", "plain"]] = "spark"
    """Which of the two checksums its answers are."""

    lines: ClassVar[str] = ""
    """What it is, in a line."""

    def __init__(self, folder: Path, layout: Layout, rows: int) -> None:
        self.folder = folder
        self.layout = layout
        self.rows = rows
        self.commits = 0

    @abstractmethod
    def versions(self) -> dict[str, str]: ...

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """All that is not a default."""

    @abstractmethod
    def load(self, files: Sequence[Path]) -> None: ...

    @abstractmethod
    def upsert(self, batch: Path) -> None: ...

    @abstractmethod
    def delete(self, keys: Path) -> None: ...

    @abstractmethod
    def upkeep(self, *, force: bool = False) -> None:
        """What its documentation says to run regularly: called after each commit, and does what is due; with force,
        all of it."""

    @abstractmethod
    def read(self) -> Answer: ...

    def plan(self) -> None:
        """Up to where a reading would start to read."""
        raise CannotDo

    def position(self) -> Any:
        raise CannotDo

    def changes(self, since: Any) -> Answer:
        """The rows that were inserted or changed after a position, as they are now."""
        raise CannotDo

    def collected(self, since: Any) -> int:
        """The same rows, handed to this process as Arrow; how many they are."""
        raise CannotDo

    def merge_at_once(self, batches: Sequence[Path]) -> None:
        """All batches merged into the base in one go: the limit of what a compaction can cost."""
        raise CannotDo

    @abstractmethod
    def live(self) -> tuple[int, int]:
        """Files of the newest version, and their bytes."""

    def renew(self) -> None:
        """The folder was replaced by another state of the table: forget what is remembered."""
        self.commits = 0

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def is_due(self, force: bool) -> bool:
        """Whether this is the call after so many that runs."""
        self.commits += 1
        return force or self.commits % EVERY == 0
