"""Random histories, and the fewest steps that lead to a difference."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nova_assets.plan import merge_units
from nova_assets_tests.fuzz.commands import Chooser, Command
from nova_assets_tests.fuzz.comparison import Difference
from nova_assets_tests.fuzz.data_forms import Stale
from nova_assets_tests.fuzz.history import History
from nova_assets_tests.fuzz.scenario import KINDS, Kind, Scenario
from nova_assets_tests.fuzz.values import KEY_TYPES, ColumnType

SMALL_BYTES = 600
"""Size of a bucket and of a file where a few rows are to fill several."""


@contextmanager
def small_files(small: bool) -> Iterator[None]:
    """Buckets and files of a few rows."""
    before = merge_units.BUCKET_BYTES, merge_units.MAX_BUCKET_BYTES
    if small:
        merge_units.BUCKET_BYTES = merge_units.MAX_BUCKET_BYTES = SMALL_BYTES
    try:
        yield
    finally:
        merge_units.BUCKET_BYTES, merge_units.MAX_BUCKET_BYTES = before


@dataclass(frozen=True)
class Finding:
    """A difference, and the fewest commands that were seen to lead to it."""

    seed: int
    scenario: Scenario
    commands: tuple[Command, ...]
    difference: Difference

    def __str__(self) -> str:
        steps = "\n".join(f"  {n}. {c}" for n, c in enumerate(self.commands, start=1))
        channel = self.scenario.channel(self.scenario.columns)
        return f"seed {self.seed}: {self.difference}\n  {channel.as_json()}\n  {self.scenario.model}\n{steps}"


def play(
    seed: int,
    steps: int,
    spark: Any = None,
    shrink: bool = True,
    possible_keys: Sequence[ColumnType] = tuple(KEY_TYPES),
    kinds: Sequence[Kind] = KINDS,
) -> Finding | None:
    """One random history. Gives what differs, if anything does."""
    rng = random.Random(seed)
    scenario = Scenario.draw(rng, possible_keys, kinds)
    commands: list[Command] = []
    with tempfile.TemporaryDirectory() as folder, small_files(scenario.small_files):
        history = History(scenario, Path(folder), spark)
        chooser = Chooser(scenario, history.naive, spark is not None)
        try:
            for _ in range(steps):
                commands.append(chooser.choose(rng))
                history.apply(commands[-1])
        except Difference as difference:
            finding = Finding(seed, scenario, tuple(commands), difference)
        else:
            return None
        finally:
            history.close()
    return shrunk(finding, spark) if shrink else finding


def shrunk(finding: Finding, spark: Any = None) -> Finding:
    """The same difference by fewer commands: parts are left out, ever smaller ones, while it remains."""
    commands, difference = list(finding.commands), finding.difference
    part = len(commands) // 2
    while part:
        start = 0
        while start < len(commands):
            fewer = commands[:start] + commands[start + part :]
            again = _replayed(finding.scenario, fewer, spark)
            if again is not None:
                commands, difference = fewer, again
            else:
                start += part
        part //= 2
    return replace(finding, commands=tuple(commands), difference=difference)


def _replayed(scenario: Scenario, commands: list[Command], spark: Any) -> Difference | None:
    with tempfile.TemporaryDirectory() as folder, small_files(scenario.small_files):
        history = History(scenario, Path(folder), spark)
        try:
            for command in commands:
                try:
                    history.apply(command)
                except Stale:
                    continue
        except Difference as difference:
            return difference
        finally:
            history.close()
    return None
