"""One random history through the public API, compared with the naive channel after every step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets_tests.fuzz.commands import DELETED, Command
from nova_assets_tests.fuzz.comparison import Comparison, Difference
from nova_assets_tests.fuzz.data_forms import Stale, as_data, twins
from nova_assets_tests.fuzz.deployment import Deployment
from nova_assets_tests.fuzz.models import merge_model
from nova_assets_tests.fuzz.naive import Change, Column, Event, Model, NaiveChannel, projected
from nova_assets_tests.fuzz.partition_spellings import spell_partition
from nova_assets_tests.fuzz.redefinitions import redefined_columns
from nova_assets_tests.fuzz.scenario import Scenario, canonical_row, widened
from nova_assets_tests.fuzz.values import TYPES, canonical


class History:
    """A channel in a store of its own, and the naive channel beside it.

    Args:
        spark: a session for reads by every strategy and for bindings; None for none of these.
    """

    def __init__(self, scenario: Scenario, folder: Path, spark: Any = None) -> None:
        self.scenario = scenario
        self.naive = NaiveChannel(scenario.model, scenario.columns, scenario.partition)
        self.declared = {c.identity for c in scenario.columns}
        self.named: set[int] = set()
        """Columns that the model of a single block names."""
        self.compare = Comparison(self.naive)
        self.collected = False
        self.cursors: dict[str, int] = {}
        self.deployment = Deployment(scenario.channel(scenario.columns), folder, spark)

    @property
    def store(self) -> Store:
        return self.deployment.store

    def close(self) -> None:
        self.deployment.close()

    # doing

    def apply(self, command: Command) -> None:
        """Carry out a command on both sides and compare.

        Raises:
            Difference: what a user sees differs.
            Stale: the command does not fit the channel.
        """
        try:
            getattr(self, f"_do_{command.name}")(**command.arguments)
            if not command.name.startswith("read"):
                self.compare.snapshot(
                    self.deployment.table(None), self.naive.states[-1], self.naive.columns, "the head"
                )
        except (Difference, Stale):
            raise
        except nova.NovaError as error:
            raise Difference(f"it is refused: {error}") from error
        except Exception as error:
            raise Difference(f"a raw {type(error).__name__}: {error}") from error

    def _do_insert(
        self,
        rows: list[dict[str, Any]],
        form: str,
        wider: Sequence[str] = (),
        without: Sequence[str] = (),
        brings: tuple[str, str, Any] | None = None,
        format: Any = None,
        own_model: Model | None = None,
    ) -> None:
        came = self.naive.columns
        self._fits(rows, came)
        if self.naive.is_model_pending:
            self._refuses_a_delta(as_data(rows, came, form, self.naive.declared.has_deletions))
            return
        if own_model is not None and not {*own_model.key, *own_model.combine} <= {c.identity for c in came}:
            raise Stale
        if own_model is not None and not {*own_model.combine} <= self.declared:
            return  # nova refuses to combine a column that came with the data
        if brings is not None and rows:
            came = (*came, Column(self.naive.next_identity, brings[0], TYPES[brings[1]]))
            rows = [{**r, brings[0]: brings[2]} for r in rows]
        came = tuple(widened(c) or c if c.name in wider else c for c in came if c.name not in without)
        rows = [{n: v for n, v in r.items() if n not in without} for r in rows]
        changes = tuple(Change(canonical_row(r, came), bool(r.get(DELETED))) for r in rows)
        columns = self._evolved(came) if rows else self.naive.columns
        data = as_data(rows, came, form, (own_model or self.naive.model).has_deletions)
        after = self.naive.merged(self.naive.states[-1], changes, own_model or self.naive.model)
        may_overflow, must_refuse = self.naive.sums_overflow(changes), self.naive.sum_outside_its_type(after)
        merge = None if own_model is None else merge_model(own_model, self.naive.columns)
        try:
            commit = self.store.insert("table", data, merge=merge, format=format)
        except nova.NovaError as error:
            cannot_hold = format is not None and ("does not hold the rows" in error.what or "options" in error.what)
            lags = self.collected and any(0 < c < self.naive.head for c in self.cursors.values())
            cannot_compare = own_model is not None and isinstance(error, nova.UnrepresentableChange) and lags
            if may_overflow or cannot_hold or cannot_compare:
                return
            raise
        if must_refuse:
            raise Difference(f"a sum outside its type is accepted: {must_refuse}")
        if rows:
            self.naive.next_identity += brings is not None
            self.naive.columns = columns
            self.naive.commit(Event("delta", changes, own_model=own_model))
            if own_model is not None:
                self.named |= {*own_model.key, *own_model.combine}
        if commit.seq != self.naive.head:
            raise Difference(f"the insert took number {commit.seq}, not {self.naive.head}")

    def _fits(self, rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> None:
        names = {c.name for c in columns} | {DELETED}
        if any(not r.keys() <= names or len(r.keys() - {DELETED}) != len(columns) for r in rows):
            raise Stale

    def _evolved(self, came: tuple[Column, ...]) -> tuple[Column, ...]:
        by_identity = {c.identity: c for c in came}
        now = tuple(by_identity.pop(c.identity, c) for c in self.naive.columns)
        return (*now, *by_identity.values())

    def _refuses_a_delta(self, data: Any) -> None:
        """A changed merge model waits for a base of all partitions (R18)."""
        with suppress(nova.ModelChanged):
            self.store.insert("table", data)
            raise Difference("a delta is accepted although a changed merge model waits for a base")

    def _do_insert_base(self, rows: list[dict[str, Any]], partition: tuple[Any] | None, form: str) -> None:
        columns = self.naive.columns
        self._fits(rows, columns)
        changes = tuple(Change(canonical_row(r, columns)) for r in rows)
        if not self.naive.can_be_base([c.row for c in changes]):
            raise Stale
        data = as_data(rows, columns, form, keyed=False)
        event = Event("base", changes, self._canonical_partition(partition))
        try:
            self._given_base(
                event, lambda: self.store.insert("table", data, kind="base", partition=self._named(partition))
            )
        except nova.ModelChanged:
            if not self.naive.is_model_pending or partition is None:
                raise

    def _given_base(self, event: Event, commit: Any) -> None:
        """A base that is refused only if it removes rows of a bag that somebody has consumed (R10)."""
        before, after = (
            projected(s, self.naive.columns)
            for s in (self.naive.states[-1], self.naive.after(self.naive.states[-1], event, self.naive.declared))
        )
        loses = self.naive.declared.kind == "append" and bool(before - after)
        try:
            seq = commit().seq
        except nova.UnrepresentableChange as error:
            if not loses or not self.cursors:
                raise
            if error.dropped != sum((before - after).values()):
                raise Difference(f"it counts {error.dropped} dropped rows: {before - after}") from error
            return
        if loses and any(self.cursors.values()):
            raise Difference("a base removes rows of a bag that a consumer has read")
        self.naive.commit(event)
        if seq != self.naive.head:
            raise Difference(f"the base took number {seq}, not {self.naive.head}")

    def _do_insert_unsound(self, rows: list[dict[str, Any]], flaw: str) -> None:
        columns, model = self.naive.columns, self.naive.model
        self._fits(rows, columns)
        if not rows or self.naive.is_model_pending:
            return
        key = [c for c in columns if c.identity in model.key and c.identity != self.naive.partition]
        expected: type[nova.NovaError]
        if flaw == "unknown column" and not self.scenario.evolve:
            columns = (*columns, Column(-1, "stray", TYPES["int"]))
            rows, expected = [{**r, "stray": 1} for r in rows], nova.SchemaMismatch
        elif flaw == "null key" and key:
            rows, expected = [{**rows[0], key[0].name: None}], nova.BadKey
        elif flaw == "two live rows" and key and model.order_by is None:
            one = max(rows, key=lambda r: any(r[c.name] == 0 for c in key))  # zeros have twins of another sign
            rows, expected = [one, {**one, **twins(one, key)}], nova.BadKey
        else:
            return
        try:
            self.store.insert("table", as_data(rows, columns, "arrow", keyed=False))
        except expected:
            return
        raise Difference(f"an insert with {flaw} is accepted")

    def _do_read_at(
        self, at: int | None, partition: tuple[Any] | None, columns: Sequence[str] | None, strategy: str
    ) -> None:
        naive = self.naive
        if at is not None and at > naive.head:
            raise Stale
        number = naive.head if at is None else at
        schema: tuple[Column, ...] | None = naive.columns_at(number)
        assert schema is not None
        if columns is not None:
            if number != naive.head or not set(columns) <= {c.name for c in schema}:
                return
            schema = tuple(next(c for c in schema if c.name == n) for n in columns)
        try:
            table = self.deployment.table(at, strategy, partition=self._named(partition), columns=columns)
        except nova.BlockCollected:
            if not self._may_be_collected(number):
                raise
            return
        if number == 0 and naive.head > 0:
            schema = None  # the empty channel has the columns of its first definition or of now
        state = naive.states[number]
        if partition is not None:
            state = naive.in_partition(state, self._canonical_partition(partition) or (None,))
        self.compare.snapshot(table, state, schema, f"version {number} by {strategy}")

    def _do_read_since(self, since: int, at: int, partition: tuple[Any] | None, strategy: str) -> None:
        naive = self.naive
        if at > naive.head:
            raise Stale
        try:
            table = self.deployment.table(at, strategy, since=since, partition=self._named(partition))
        except nova.BlockCollected:
            if not self.collected or (at == naive.head and since in self.cursors.values()):
                raise
            return
        except nova.UnrepresentableChange:
            if not self.compare.loses_rows(since, at):
                raise
            return
        where = f"changes {since} to {at} by {strategy}"
        self.compare.changes(table, since, at, self._canonical_partition(partition), where)
        if since < at:
            names = table.column_names[1:2] or table.column_names  # one column: a key, or a value
            some = self.deployment.table(at, strategy, since=since, partition=self._named(partition), columns=names)
            self.compare.some_columns(some, table, f"column {names} of {where}")

    def _do_read_keys(self, keys: list[dict[str, Any]], strategy: str) -> None:
        columns = tuple(c for c in self.naive.columns if c.identity in self.naive.declared.key)
        if any(r.keys() != {c.name for c in columns} for r in keys):
            raise Stale
        table = self.deployment.table(None, strategy, keys=as_data(keys, columns, "arrow", keyed=False))
        requested = {self.naive.key(canonical_row(r, columns)) for r in keys}
        state = tuple(r for r in self.naive.states[-1] if self.naive.key(r) in requested)
        self.compare.snapshot(table, state, self.naive.columns, f"{len(keys)} keys by {strategy}")

    def _do_compact(self, chained: bool, partition: tuple[Any] | None) -> None:
        names = None
        if partition is not None:
            canonical_partition = self._canonical_partition(partition)
            names = [
                p.partition
                for p in self.store.partitions("table", self._named(partition))
                if canonical_partition is not None
            ]
        self.store.compact("table", chained=chained, partitions=names)
        for number in range(max(1, self.naive.head - 2), self.naive.head + 1):  # in the columns of their time
            self._do_read_at(number, None, None, "arrow")

    def _do_collect(self) -> None:
        self.store.collect_garbage("table")
        self.store.delete_collected()
        self.collected = True

    def _do_restore(self, at: int) -> None:
        if at > self.naive.head:
            raise Stale
        changes = tuple(Change(r) for r in self.naive.states[at])
        try:
            self._given_base(Event("base", changes), lambda: self.store.restore("table", at))
        except nova.BlockCollected:
            if not self._may_be_collected(at):
                raise
        except nova.NotSupported:
            if not self.naive.has_other_merge_columns(at):
                raise
        except nova.BadKey:
            if self.naive.can_be_base(self.naive.states[at]):
                raise
        else:
            if not self.naive.can_be_base(self.naive.states[at]):
                raise Difference(f"version {at} is restored although its rows have no key of their own")

    def _do_drop(self, partition: tuple[Any]) -> None:
        named = self._named(partition)
        assert named is not None
        canonical_partition = self._canonical_partition(partition)
        assert canonical_partition is not None
        try:
            commit = self.store.drop("table", named)
        except nova.PartitionError:
            if self.naive.in_partition(self.naive.states[-1], canonical_partition):
                raise
            return
        if commit is not None:
            self.naive.commit(Event("drop", partition=canonical_partition))
        elif self.naive.in_partition(self.naive.states[-1], canonical_partition):
            raise Difference("a partition with rows is not dropped")

    def _do_redefine(self, action: str, column: str | None, name: str, type: str) -> None:
        now = self.naive.columns
        free = [c for c in now if c.identity not in self.naive.fixed]
        chosen = next((c for c in free if c.name == column), None)
        if action != "add" and chosen is None:
            raise Stale
        new_column = Column(self.naive.next_identity, name, TYPES[type])
        columns = redefined_columns(action, now, free, chosen, new_column, self.declared)
        names = {c.identity: c.name for c in columns}
        if columns == now or any(names.get(c.identity) != c.name for c in now if c.identity in self.named):
            return  # a block is read by a model that names such a column
        self._refuses_other_partitions()
        renamed = {names[c.identity]: c.name for c in now if names.get(c.identity, c.name) != c.name}
        channel = self.scenario.channel(columns, self.naive.declared, renamed)
        if renamed.items() & self.deployment.channel.renamed.items():  # nova does not know whether to make them again
            self.store.register(self.scenario.channel(now, self.naive.declared), replace=True)
        self.store.register(channel, replace=True)
        self.naive.next_identity += 1
        self.naive.columns = columns
        self.declared = {c.identity for c in columns}
        self.deployment.open(channel)

    def _do_remodel(self, model: Model) -> None:
        """Change the merge model in the definition, which takes effect with a base (R18)."""
        columns = self.naive.columns
        if not {*model.key, *model.combine, *((model.order_by,) if model.order_by is not None else ())} <= {
            c.identity for c in columns
        }:
            raise Stale
        channel = self.scenario.channel(columns, model)
        if model != self.naive.declared:
            with suppress(nova.DefinitionConflict):
                self.store.register(channel)
                raise Difference("another merge model is accepted without replace=True")
        self.store.register(channel, replace=True)
        self.naive.declare(model)
        self.declared = {c.identity for c in columns}
        self.deployment.open(channel)

    def _refuses_other_partitions(self) -> None:
        """No channel with versions gets other partitions: its rows would be in none of them."""
        if self.naive.head == 0:
            return
        other = None if self.scenario.dimension is not None else nova.dynamic(self.naive.columns[0].name)
        with suppress(nova.DefinitionError):
            changed = replace(self.scenario, dimension=other).channel(self.naive.columns, self.naive.declared)
            self.store.register(changed, replace=True)
            raise Difference(f"partitions {other} are accepted at version {self.naive.head}")

    def _do_reopen(self) -> None:
        self.deployment.open(self.deployment.channel)

    def _do_run(self, binding: str) -> None:
        naive = self.naive
        self.deployment.views.pop(binding, None)
        since = self.cursors.get(binding)
        self.store.run(binding)
        if binding not in self.deployment.views:
            raise Difference("the task did not run")
        old, new, everything = self.deployment.views[binding]
        if binding == "changes":
            self.compare.snapshot(everything, naive.states[-1], naive.columns, "all")
            if since is None:
                if old.num_rows:
                    raise Difference(f"old has {old.num_rows} rows before the first run")
            elif since > 0:
                self.compare.snapshot(old, naive.states[since], naive.columns_at(since), f"old at {since}")
        if since is None:
            changes = self.compare.as_changes(new, naive.columns, naive.model)
            if projected(naive.merged((), changes, naive.model), naive.columns) != projected(
                naive.states[-1], naive.columns
            ):
                raise Difference(f"new of the first run: {changes} is not {naive.states[-1]}")
        else:
            self.compare.changes(new, since, naive.head, None, f"new since {since}", has_run=True)
        self.cursors[binding] = naive.head

    # comparing

    def _may_be_collected(self, number: int) -> bool:
        return self.collected and number != self.naive.head and number != self.cursors.get("changes")

    def _named(self, partition: tuple[Any] | None) -> Any:
        """The partition as an argument of a verb, spelled in another way after each commit."""
        return spell_partition(partition, self.naive.head)

    def _canonical_partition(self, partition: tuple[Any] | None) -> tuple[Any] | None:
        if partition is None:
            return None
        column = next(c for c in self.naive.columns if c.identity == self.naive.partition)
        return (canonical(partition[0], column.type),)
