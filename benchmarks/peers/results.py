"""Results, one line each, written as soon as they are there; so that a run that ended early goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Key:
    """What was run: the same is not run twice."""

    system: str
    workload: str
    repeat: int
    rows: int
    series: int
    small: int


@dataclass(frozen=True)
class Result:
    """What came of it.

    Args:
        steps: step -> what it cost.
        live: files and bytes of the newest version, and bytes on disk, in the end.
        wrong: answers that are not the right ones.
        cannot: the system has no such thing.
        error: why it failed.
    """

    key: Key
    steps: dict[str, dict[str, float]] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    cannot: bool = False
    error: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether it need not be tried again."""
        return self.error is None


class Results:
    """A file of results; of two with one key, the later counts."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, result: Result) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as out:
            out.write(json.dumps(asdict(result)) + "\n")
            out.flush()

    def all(self) -> list[Result]:
        found: dict[Key, Result] = {}
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        for line in lines:
            try:
                raw = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last one, of a process that was killed while it wrote
            result = Result(**{**raw, "key": Key(**raw["key"])})
            found[result.key] = result
        return list(found.values())

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those that have not been run, or failed."""
        done = {r.key for r in self.all() if r.finished}
        return [k for k in keys if k not in done]
