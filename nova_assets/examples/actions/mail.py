"""Files as a careless postman delivers them: in any order, some of them twice, some without ringing."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

TWICE = 0.2
"""So many of the files are delivered twice."""


class Postman:
    """Delivers the files of a folder into another.

    Args:
        source: the folder; its files end in ``.json.gz``.
        landing: where they are delivered.
        seed: decides about the order and what comes twice.
    """

    def __init__(self, source: Path, landing: Path, seed: int = 0) -> None:
        self.source = source
        self.landing = landing
        self.files = sorted(source.rglob("*.json.gz"))
        rng = random.Random(seed)
        self.letters = [*self.files, *rng.sample(self.files, round(TWICE * len(self.files)))]
        rng.shuffle(self.letters)

    def thirds(self) -> list[Sequence[Path]]:
        """What is delivered before anybody watches, while somebody does, and after that."""
        n = len(self.letters)
        return [self.letters[: n // 3], self.letters[n // 3 : 2 * n // 3], self.letters[2 * n // 3 :]]

    def deliver(self, letters: Sequence[Path]) -> None:
        """Put files into the folder, each at once and whole."""
        for path in letters:
            target = self.landing / path.relative_to(self.source)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{uuid.uuid4().hex}")
            shutil.copy2(path, part)
            part.rename(target)
