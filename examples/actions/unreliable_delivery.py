"""Delivery of files as in reality: in any order, and some of them twice."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

DUPLICATE_SHARE = 0.2
"""Share of the files that are delivered twice."""


class UnreliableDelivery:
    """Copies the files of one folder into another, in random order and some of them twice.

    Args:
        source: folder with files that end in ``.json.gz``.
        landing: target folder.
        seed: seed for the order, and for the files that are copied twice.
    """

    def __init__(self, source: Path, landing: Path, seed: int = 0) -> None:
        self.source = source
        self.landing = landing
        self.files = sorted(source.rglob("*.json.gz"))
        rng = random.Random(seed)
        self.delivery_order = [*self.files, *rng.sample(self.files, round(DUPLICATE_SHARE * len(self.files)))]
        rng.shuffle(self.delivery_order)

    def split_in_thirds(self) -> list[Sequence[Path]]:
        """Files to deliver before, during and after the watch."""
        n = len(self.delivery_order)
        return [
            self.delivery_order[: n // 3],
            self.delivery_order[n // 3 : 2 * n // 3],
            self.delivery_order[2 * n // 3 :],
        ]

    def deliver(self, files: Sequence[Path]) -> None:
        """Copy files into the target folder. Each file appears complete, by a rename."""
        for path in files:
            target = self.landing / path.relative_to(self.source)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{uuid.uuid4().hex}")
            shutil.copy2(path, part)
            part.rename(target)
