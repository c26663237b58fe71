"""Steps of a random history, each complete in itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.block_options import BLOCK_FORMATS
from nova_assets_tests.fuzz.models import draw_other_model, model_of_one_block
from nova_assets_tests.fuzz.naive import Kind, NaiveChannel
from nova_assets_tests.fuzz.redefinitions import ACTIONS_THAT_RENAME_OR_DROP
from nova_assets_tests.fuzz.scenario import Scenario, canonical_row
from nova_assets_tests.fuzz.values import TYPES, canonical

DELETED = "_deleted"


@dataclass(frozen=True)
class Command:
    """One step, with its rows, so that any selection of steps can be tried again."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


def _has_deletion(changes: list[dict[str, Any]]) -> bool:
    return any(r.get(DELETED) for r in changes)


class Chooser:
    """Chooses the next step from what the naive channel has.

    Args:
        with_spark: whether bindings run, and reads take every strategy.
    """

    def __init__(self, scenario: Scenario, naive: NaiveChannel, with_spark: bool) -> None:
        self.scenario = scenario
        self.naive = naive
        self.with_spark = with_spark
        self._last = ""

    def choose(self, rng: random.Random) -> Command:
        """The next command, at random. What follows a redefinition is often a compaction, which rewrites blocks of the
        columns of before."""
        naive = self.naive
        pending = naive.is_model_pending
        weights = {
            "insert": 6 if pending else 30,
            "insert_base": 20 if pending else 6,
            "insert_unsound": 8,
            "read_at": 10,
            "read_since": 12,
            "read_keys": 6 if naive.declared.key else 0,
            "compact": 200 if self._last == "redefine" else 6,
            "collect": 2,
            "restore": 8 if pending else 3,
            "redefine": 4,
            "remodel": 3,
            "reopen": 1,
            "drop": 4 if self.scenario.partition is not None else 0,
            "run": 6 if self.with_spark else 0,
        }
        name = rng.choices(list(weights), list(weights.values()))[0]
        arguments: dict[str, Any] = getattr(self, f"_choose_{name}", lambda _: {})(rng)
        self._last = name
        return Command(name, arguments)

    def _choose_insert(self, rng: random.Random) -> dict[str, Any]:
        most = rng.choice([0, 2, 5, 12])
        changes = self._sound(self._rows(rng, most))
        if self.naive.declared.key:
            for row in changes:
                row[DELETED] = rng.random() < 0.25
            live = {self._key(r) for r in changes if not r[DELETED]}
            changes += [
                {**r, DELETED: True}
                for r in self._sound(self._rows(rng, 2))
                if self._key(r) in live and rng.random() < 0.5
            ]
            changes = self._one_deletion_a_key(changes)
        elif self.naive.declared.has_deletions:
            existing = [self._raw(rng, r) for r in self.naive.states[-1] if rng.random() < 0.3]
            for row in (*changes, *existing):
                row[DELETED] = rng.random() < 0.3
            for row in existing:
                row[DELETED] = rng.random() < 0.7
            changes += existing
        found = {"rows": changes, "form": rng.choice(["arrow", "arrow", "dicts"]), **self._evolution(rng)}
        return {**found, **self._block_options(changes)}

    def _block_options(self, changes: list[dict[str, Any]]) -> dict[str, Any]:
        """A file format and a merge model of this block alone. They take no random number from the other steps."""
        rng = random.Random(repr(changes))
        options: dict[str, Any] = {"format": rng.choice(BLOCK_FORMATS)} if rng.random() < 0.3 else {}
        own = model_of_one_block(rng, self.naive) if rng.random() < 0.3 else None
        live = [self._key(r) for r in changes if not r.get(DELETED)] if self.naive.declared.key else []
        is_sound = len(set(live)) == len(live) and not (own and own.kind == "append" and _has_deletion(changes))
        return {**options, "own_model": own} if own is not None and is_sound else options

    def _evolution(self, rng: random.Random) -> dict[str, Any]:
        """Columns that the data leaves out, and types that it brings wider."""
        if not self.scenario.evolve or rng.random() < 0.8:
            return {}
        free = [c for c in self.naive.columns if c.identity not in self.naive.fixed]
        if not free:
            return {}
        column = rng.choice(free)
        if rng.random() < 0.5 and column.type.wider is not None:
            return {"wider": (column.name,), "form": "arrow"}
        if rng.random() < 0.5 and len(self.naive.columns) > 1:
            return {"without": (column.name,), "form": "arrow"}
        type_ = rng.choice(list(TYPES.values()))
        return {"brings": (f"e{self.naive.next_identity}", type_.ddl, rng.choice(type_.values)), "form": "arrow"}

    def _sound(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """At most one live row of each key; several where ``order_by`` decides between them."""
        naive, found = self.naive, {}
        order = next((c for c in naive.columns if c.identity == naive.declared.order_by), None)
        if not naive.declared.key:
            return rows
        for row in rows:
            tie = canonical(row[order.name], order.type) if order is not None else None
            found[(self._key(row), tie)] = row
        return list(found.values())

    def _one_deletion_a_key(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        deletions = {self._key(r): r for r in rows if r[DELETED]}
        return [r for r in rows if not r[DELETED]] + list(deletions.values())

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return self.naive.key(canonical_row(row, self.naive.columns))

    def _choose_insert_base(self, rng: random.Random) -> dict[str, Any]:
        rows = self._rows(rng, rng.choice([0, 5, 12]))
        if rng.random() < 0.6:  # as the channel is, but for some of its rows: diffs find little
            rows += [self._raw(rng, r) for r in self.naive.states[-1] if rng.random() < 0.8]
        rows = self._first_of_each_key([r for r in rows if self._has_key(r)])
        partition = None
        if self.scenario.partition is not None and rng.random() < 0.4:
            partition = (rng.choice(self.scenario.partition_values),)
            rows = [r for r in rows if r["p"] == partition[0]]
        return {"rows": rows, "partition": partition, "form": "arrow"}

    def _rows(self, rng: random.Random, most: int) -> list[dict[str, Any]]:
        return self.scenario.rows(rng, self.naive.columns, most, self.naive.declared.key)

    def _has_key(self, row: dict[str, Any]) -> bool:
        """Whether the key of a row is not null under the declared model, which may be a new one."""
        own = {*self.naive.declared.key} - {self.naive.partition}
        return all(row[c.name] is not None for c in self.naive.columns if c.identity in own)

    def _first_of_each_key(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not self.naive.declared.key:
            return rows
        return list({self._key(r): r for r in reversed(rows)}.values())

    def _raw(self, rng: random.Random, row: Mapping[int, Any]) -> dict[str, Any]:
        """Raw values whose canonical row is this one: a zero of any sign is zero."""
        found = {}
        for column in self.naive.columns:
            value = row.get(column.identity)
            fitting = [v for v in column.type.values if canonical(v, column.type) == value]
            found[column.name] = None if value is None else rng.choice(fitting or [value])
        return found

    def _choose_insert_unsound(self, rng: random.Random) -> dict[str, Any]:
        return {
            "rows": self._rows(rng, 3),
            "flaw": rng.choice(["two live rows", "null key", "unknown column"]),
        }

    def _choose_read_at(self, rng: random.Random) -> dict[str, Any]:
        names = [c.name for c in self.naive.columns]
        return {
            "at": rng.choice([None, rng.randint(0, self.naive.head)]),
            "partition": self._some_partition(rng),
            "columns": rng.sample(names, rng.randint(1, len(names))) if rng.random() < 0.2 else None,
            "strategy": self._some_strategy(rng),
        }

    def _choose_read_since(self, rng: random.Random) -> dict[str, Any]:
        since = rng.choice([rng.randint(0, self.naive.head), max(0, self.naive.head - 1)])
        until = rng.choice([self.naive.head, rng.randint(since, self.naive.head)])
        return {
            "since": since,
            "at": until,
            "partition": self._some_partition(rng),
            "strategy": self._some_strategy(rng),
        }

    def _choose_read_keys(self, rng: random.Random) -> dict[str, Any]:
        rows = self._rows(rng, 4)
        names = [c.name for c in self.naive.columns if c.identity in self.naive.declared.key]
        return {"keys": [{n: r[n] for n in names} for r in rows], "strategy": self._some_strategy(rng)}

    def _some_partition(self, rng: random.Random) -> tuple[Any] | None:
        if self.scenario.partition is None or rng.random() < 0.6:
            return None
        return (rng.choice(self.scenario.partition_values),)

    def _some_strategy(self, rng: random.Random) -> str:
        if not self.with_spark or rng.random() < 0.9:
            return "arrow"
        return rng.choice(["buckets", "spark", "batches"])

    def _choose_compact(self, rng: random.Random) -> dict[str, Any]:
        if self._last == "redefine":
            return {"chained": False, "partition": None}
        return {"chained": rng.random() < 0.4, "partition": self._some_partition(rng)}

    def _choose_restore(self, rng: random.Random) -> dict[str, Any]:
        return {"at": rng.randint(0, self.naive.head)}

    def _choose_drop(self, rng: random.Random) -> dict[str, Any]:
        return {"partition": (rng.choice(self.scenario.partition_values),)}

    def _choose_redefine(self, rng: random.Random) -> dict[str, Any]:
        free = [c.name for c in self.naive.columns if c.identity not in self.naive.fixed]
        actions = ["add", "widen"]
        if "multiset" not in (
            self.naive.model.kind,
            self.naive.declared.kind,
        ):  # each of its columns takes part in its merges
            actions += ACTIONS_THAT_RENAME_OR_DROP
        action = rng.choice(actions) if free else "add"
        name = f"n{self.naive.next_identity}" if action != "add" or rng.random() < 0.5 else rng.choice(["x", "y"])
        return {
            "action": action,
            "column": rng.choice(free) if free else None,
            "name": name,
            "type": rng.choice(list(TYPES)),
        }

    def _choose_remodel(self, rng: random.Random) -> dict[str, Any]:
        naive = self.naive
        if naive.is_model_pending and rng.random() < 0.3:
            return {"model": naive.model}  # the change is taken back
        kinds: list[Kind] = ["append", "upsert", "keyed"]
        if self.scenario.model.kind == "multiset":
            kinds.append("multiset")
        return {"model": draw_other_model(rng, naive, kinds, self.scenario.possible_keys)}

    def _choose_run(self, rng: random.Random) -> dict[str, Any]:
        return {"binding": rng.choice(["changes", "new"])}
