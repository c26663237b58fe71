"""An engine of lists of rows, so that catalog and runtime are tested without Spark: real files, real staging, no JVM.

Frames are lists of dicts; blocks are JSON-lines files. It speaks the ``Engine`` protocol, down to keys and
``_deleted``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from nova_assets.engine.storage import external_files
from nova_assets.engine.storage.warehouse import Warehouse
from nova_assets.errors import FileMissing, PartitionError
from nova_assets.formats.record_batches import stream_table
from nova_assets.model.block import Block, DataFile, Manifest, StagedBlock
from nova_assets.model.block_options import NO_OPTIONS, BlockOptions
from nova_assets.model.channel import Channel
from nova_assets.model.declared_schema import schema_from_declaration
from nova_assets.model.function_reference import FunctionRef
from nova_assets.model.merge import Custom
from nova_assets.model.partitions import is_in_scope, partition_name, partition_values
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import ChangeUnion, DeltaChain, EmptyRead, Read, Snapshot, SnapshotAsInserts, SnapshotDiff
from nova_assets.model.schema import DELETED, DataType, Field, Schema
from nova_assets_tests.stub_merge import (
    Change,
    Row,
    changes_of,
    compose_changes,
    diff,
    key_of_row,
    multiset_difference,
    rows_of_changes,
)

_TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string"}


class StubEngine:
    """The ``Engine`` protocol over lists of dicts. The engine itself is each of the parts that it has.

    Args:
        warehouse: a folder.
        schema: DDL of frames that are empty, whose columns nothing else tells.
    """

    session: Any = None
    format = "jsonl"
    forced_strategy: ReadStrategy | None = None
    reader = writer = rewriter = frames = queries = inputs = table_files = property(lambda self: self)
    external_files = external_files

    def __init__(self, warehouse: str | Path, schema: str = "k bigint, v bigint") -> None:
        self.root = Path(warehouse)
        self.warehouse = Warehouse(warehouse)
        self.default = schema_from_declaration(schema)
        self.evaluations = 0

    def cpu_seconds(self) -> float | None:
        return None

    # reading

    def read(self, read: Read) -> list[Row]:
        if isinstance(read, Snapshot):
            return self._snapshot(read)
        if isinstance(read, SnapshotAsInserts):
            return (
                [{**r, DELETED: False} for r in self._snapshot(read.snapshot)]
                if _keyed(read.snapshot)
                else self._snapshot(read.snapshot)
            )
        if isinstance(read, DeltaChain):
            return self._chain(read)
        if isinstance(read, SnapshotDiff):
            return diff(read.new.merge, read.new.channel, self._snapshot(read.old), self._snapshot(read.new))
        if isinstance(read, ChangeUnion):
            return [r for part in read.parts for r in self.read(part)]
        assert isinstance(read, EmptyRead)
        return []

    def _snapshot(self, read: Snapshot) -> list[Row]:
        rows = [r for b in read.bases for r in self._rows(b)]
        if isinstance(read.merge, Custom):
            for d in read.deltas:
                assert isinstance(d, Block) and isinstance(d.merge, Custom)
                rows = FunctionRef.parse(d.merge.merge_ref).load()(rows, self._rows(d))
            return rows
        if not read.merge.key:
            return rows + [r for d in read.deltas for r in self._rows(d)]
        state = {key_of_row(read.merge, r): (None, r) for r in rows}
        for d in read.deltas:
            model = d.merge if isinstance(d, Block) and d.has_own_merge else read.merge
            state = {
                k: (None, v[1])
                for k, v in compose_changes(model, state, changes_of(model, self._rows(d))).items()
                if v[1]
            }
        return [live for _, live in state.values() if live is not None]

    def _chain(self, read: DeltaChain) -> list[Row]:
        if isinstance(read.merge, Custom):
            chain = FunctionRef.parse(read.merge.chain_ref).load()
            rows = self._rows(read.deltas[0])
            for d in read.deltas[1:]:
                rows = chain(rows, self._rows(d))
            return rows
        if not read.merge.key:
            return [r for d in read.deltas for r in self._rows(d)]
        state: dict[tuple[Any, ...], Change] = {}
        for d in read.deltas:
            state = compose_changes(read.merge, state, changes_of(read.merge, self._rows(d)))
        return rows_of_changes(state)

    def _rows(self, block: Any) -> list[Row]:
        assert isinstance(block, Block), block
        found: list[Row] = []
        for f in block.manifest.files:
            path = self.root / f.path
            if not path.is_file():
                raise FileMissing(f"{f.path} is not in the warehouse")
            found += [json.loads(line) for line in path.read_text().splitlines()]
        return found

    def fetch(self, read: Read) -> list[Row]:
        return self.read(read)

    def read_table(self, read: Read, columns: Sequence[str] | None = None) -> Any:
        rows = self.read(read)
        return self.to_arrow(rows if columns is None else self.select(rows, columns))

    def read_batches(self, read: Read, columns: Sequence[str] | None = None) -> Any:
        return stream_table(self.read_table(read, columns))

    def check_no_sum_overflow(self, error_label: str, staged: Any, earlier_blocks: Any, type_by_column: Any) -> None:
        """Its numbers have no limits."""

    def filter_by_keys(
        self,
        snapshot: Snapshot | list[Row],
        keys: list[Row],
        key_columns: Sequence[str],
        *,
        in_process: bool = False,
        may_be_table: bool = False,
    ) -> list[Row]:
        snapshot = self.read(snapshot) if isinstance(snapshot, Snapshot) else snapshot
        wanted = {tuple(r[c] for c in key_columns) for r in keys}
        return [r for r in snapshot if tuple(r[c] for c in key_columns) in wanted]

    def drop_deletions(self, change: list[Row]) -> list[Row]:
        return [{c: v for c, v in r.items() if c != DELETED} for r in change if not r[DELETED]]

    def select(self, frame: list[Row], columns: Sequence[str]) -> list[Row]:
        return [{c: r[c] for c in columns} | {c: v for c, v in r.items() if c == DELETED} for r in frame]

    def to_arrow(self, frame: list[Row]) -> Any:
        import pyarrow as pa

        return pa.Table.from_pylist(frame)

    def compute(self, sql: str, values: Any, frames: Any, max_rows: int) -> list[Row] | None:
        return None

    def is_empty(self, frame: list[Row]) -> bool:
        return not frame

    def close(self) -> None:
        """Nothing is held."""

    def limit_cores(self, max_cores: int | None) -> None:
        """It has one core."""

    def computation_scope(self) -> Any:
        return nullcontext()

    def task_computation_scope(self, job_name: str, function: Any, on_progress: Any, parallelism: Any = None) -> Any:
        return nullcontext()

    def is_frame(self, data: Any) -> bool:
        return isinstance(data, list)

    def column_names(self, frame: list[Row]) -> Sequence[str]:
        return list(frame[0]) if frame else self.default.names

    def count(self, frame: list[Row]) -> int:
        return len(frame)

    def schema_of(self, frame: list[Row]) -> Schema:
        if not frame:
            assert self.default is not None
            return self.default
        columns: dict[str, Field] = {}
        for row in frame:
            for name, value in row.items():
                if value is not None or name not in columns:
                    columns[name] = Field(name, DataType(_TYPES.get(type(value), "string")))
        return Schema(tuple(columns.values()))

    def create_frame(self, sql: str, values: Mapping[str, Any], frames: Mapping[str, Any]) -> list[Row]:
        raise NotImplementedError

    # writing

    @contextmanager
    def evaluate_once(self, frames: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        yield frames

    @contextmanager
    def persisted_rows(self, frame: list[Row]) -> Iterator[list[Row]]:
        yield frame

    def runs_python(self, frame: list[Row]) -> bool:
        return True

    def optimized_plan(self, frame: list[Row]) -> str | None:
        return None

    def convert(self, data: Any, schema: Schema | None, *, allow_widening: bool = False) -> list[Row]:
        return list(data)

    def convert_kept_files(
        self, data: Any, schema: Schema | None, *, allow_widening: bool = False
    ) -> tuple[list[Row], BlockOptions]:
        raise NotImplementedError

    def to_frame(self, data: Any, schema: Schema | None = None) -> list[Row]:
        return list(data)

    def read_database(self, *_: Any) -> Any:
        raise NotImplementedError

    def store(self) -> Any:
        raise NotImplementedError("this engine's rows are for itself, not for tables of others")

    read_folder = write_files = store

    def rewrite(
        self, read: Snapshot | DeltaChain, staged: StagedBlock, channel: Channel, schema: Schema
    ) -> tuple[Manifest, ReadStrategy]:
        return self.write(self.read(read), staged, channel, schema), "arrow"

    def frame_digest(self, frame: list[Row], schema: Schema | None) -> str:
        texts = sorted(repr(sorted((k, v) for k, v in row.items() if v is not None)) for row in frame)
        return f"{len(frame)}:{hashlib.sha256(repr(texts).encode()).hexdigest()[:32]}"

    def write(
        self,
        frame: list[Row],
        staged: StagedBlock,
        channel: Channel | None,
        schema: Schema,
        *,
        digest: bool = False,
        options: BlockOptions = NO_OPTIONS,
    ) -> Manifest:
        if channel is not None and options.merge is not None:
            channel = replace(channel, merge=options.merge)
        manifest = self._written(list(frame), staged, channel, schema)
        return replace(manifest, digest=self.frame_digest(frame, schema)) if digest else manifest

    def _written(self, rows: list[Row], staged: StagedBlock, channel: Channel | None, schema: Schema) -> Manifest:
        if channel is not None and channel.merge.key and staged.kind == "delta":
            rows = rows_of_changes(changes_of(channel.merge, rows))
        elif channel is not None and channel.merge.key:
            rows = [live for _, live in changes_of(channel.merge, rows).values() if live is not None]
        folder = self.root / staged.folder
        folder.mkdir(parents=True, exist_ok=True)
        if not rows:
            return Manifest((), schema.without_columns(DELETED))
        by_partition: dict[str, list[Row]] = {}
        for row in rows:
            by_partition.setdefault(self._partition(row, channel, staged.partition), []).append(row)
        files = []
        for n, (partition, some) in enumerate(by_partition.items()):
            path = folder / f"part-{n}.jsonl"
            path.write_text("".join(json.dumps(r) + "\n" for r in some))
            deletes = sum(bool(r.get(DELETED)) for r in some)
            files.append(
                DataFile(
                    f"{staged.folder}/{path.name}",
                    len(some),
                    path.stat().st_size,
                    partition=partition,
                    deletes=deletes,
                )
            )
        return Manifest(tuple(files), schema.without_columns(DELETED), sum(f.deletes for f in files), "jsonl")

    def _partition(self, row: Row, channel: Channel | None, scope: str) -> str:
        if channel is None or not channel.partitions:
            return ""
        name = partition_name(channel.partition_columns, {c: str(row[c]) for c in channel.partition_columns})
        if not is_in_scope(name, scope):
            raise PartitionError(f"a row of {name} in {scope}")
        return name

    def add_partition_columns(self, frame: list[Row], channel: Channel, scope: str, schema: Schema | None) -> list[Row]:
        values = {c: v for c, v in partition_values(scope).items()}
        return [{**values, **r} for r in frame]

    def count_dropped_rows(self, old: Snapshot, new: Manifest) -> int:
        staged = Block("", old.channel, "", "base", 0, 0, new, old.merge)
        return len(multiset_difference(self._snapshot(old), self._rows(staged)))


def _keyed(read: Snapshot) -> bool:
    return read.merge.key
