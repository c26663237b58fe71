"""Counts of what the soak did, and problems that it saw, from several threads."""

from __future__ import annotations

import threading
from collections import Counter


class Tally:
    """Counts by table and line, and problems by finding."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._problems: dict[str, Counter[str]] = {}

    def count(self, table: str, line: str) -> None:
        with self._lock:
            self._counts[table, line] += 1

    def problem(self, finding: str, text: str) -> None:
        with self._lock:
            self._problems.setdefault(finding, Counter())[text] += 1

    def counts(self) -> list[tuple[str, str, int]]:
        """Table, line and count, sorted."""
        with self._lock:
            return [(*key, n) for key, n in sorted(self._counts.items())]

    def problems(self, finding: str) -> list[str]:
        """Problems of a finding, each once, with its count."""
        with self._lock:
            return [f"{text} ({n} times)" if n > 1 else text for text, n in self._problems.get(finding, {}).items()]
