"""Parquet files and a list of those that count: what one can do without a table format. The limit on one machine."""

from __future__ import annotations

import json
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.peers.data import first_day
from benchmarks.peers.system import System


class Plain(System):
    """An upsert reads, leaves out what is replaced, adds, and writes again; where keys are clustered, only the files
    that have days of the batch."""

    digest = "plain"

    def settings(self) -> dict[str, str]:
        touched = "files with days of the batch" if self.layout.clustered else "all files"
        return {"threads": "2", "compression": "zstd", "an upsert rewrites": touched, "upkeep": "none"}

    @property
    def files(self) -> list[Path]:
        found: list[str] = json.loads((self.folder / "current.json").read_text())
        return [self.folder / f for f in found]

    def load(self, files: Sequence[Path]) -> None:
        self._commit([self._written(list(files)[n : n + 1], [], []) for n in range(len(files))])

    def upsert(self, batch: Path) -> None:
        self._rewrite(batch, [batch], [])

    def delete(self, keys: Path) -> None:
        self._rewrite(keys, [], [keys])

    def merge_at_once(self, batches: Sequence[Path]) -> None:
        self._commit([self._written(self.files, list(batches), [])])

    def upkeep(self, *, force: bool = False) -> None:
        if force and len(self.files) > 1:
            self._commit([self._written(self.files, [], [])])

    def live(self) -> tuple[int, int]:
        return len(self.files), sum(f.stat().st_size for f in self.files)

    def _rewrite(self, of: Path, batches: list[Path], gone: list[Path]) -> None:
        touched = self.files
        if self.layout.clustered:
            earliest = first_day(of)
            touched = [f for f in self.files if last_day(f) >= earliest]
        rest = [f for f in self.files if f not in touched]
        self._commit([*rest, self._written(touched, batches, gone)])

    def _commit(self, files: Sequence[Path]) -> None:
        before = self.files if (self.folder / "current.json").exists() else []
        part = self.folder / "current.part"
        part.write_text(json.dumps([f.name for f in files]))
        part.rename(self.folder / "current.json")
        for file in {*before} - {*files}:
            file.unlink()

    def _written(self, files: Sequence[Path], batches: Sequence[Path], gone: Sequence[Path]) -> Path:
        path = self.folder / f"part-{uuid.uuid4().hex[:12]}.parquet"
        self._merge(files, batches, gone, path)
        return path

    @abstractmethod
    def _merge(self, files: Sequence[Path], batches: Sequence[Path], gone: Sequence[Path], into: Path) -> None:
        """Write the rows of files that no batch has and that are not gone, and those of the batches: of several with
        one key, that of the later batch."""


def last_day(file: Path) -> str:
    opened = pq.ParquetFile(file)
    day = opened.schema_arrow.get_field_index("day")
    return str(max(opened.metadata.row_group(n).column(day).statistics.max for n in range(opened.num_row_groups)))
