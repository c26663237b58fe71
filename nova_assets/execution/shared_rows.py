"""Rows that several executions of this process share: computed by the first, and kept until the last is done.

The key of the rows is looked up when an execution needs them. An execution that reads other blocks than were planned,
because a channel has moved meanwhile, therefore computes its own rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import NotSupported
from nova_assets.execution.input_view import count_rows
from nova_assets.masking import get_logger
from nova_assets.model.engine import Engine, Frame
from nova_assets.model.execution import Pin
from nova_assets.model.merge import Append, Multiset, Upsert
from nova_assets.model.partition_rule import FewRows
from nova_assets.model.reads import Read
from nova_assets.model.workflowette import Workflowette
from nova_assets.plan import modes
from nova_assets.plan.merged_executions import RowsKey, SharedRows, read_key, task_key
from nova_assets.plan.run_plan import RunPlan, Step


@dataclass(slots=True)
class _Kept:
    rows: SharedRows
    awaited: set[str]
    frames: dict[str, Frame] = field(default_factory=dict)
    result: Any = None
    cleanup: ExitStack = field(default_factory=ExitStack)

    def release(self) -> None:
        with suppress(Exception):  # the session may have ended, and the rows with it
            self.cleanup.close()
        self.frames, self.result = {}, None


class SharedRowsOfRound:
    """The rows that the executions of one round share.

    Args:
        engine: computes and keeps the rows.
        planned: rows that several executions need. Whether the rows of a function are shared is decided when its frame
            is known, because only then it is known whether it runs Python.
    """

    def __init__(self, engine: Engine, planned: Sequence[SharedRows]) -> None:
        self._engine = engine
        self._kept = {r.key: _Kept(r, set(r.executions)) for r in planned}

    @property
    def decisions(self) -> tuple[SharedRows, ...]:
        """The rows, with what is known about them by now."""
        return tuple(k.rows for k in self._kept.values())

    def read(self, key: RowsKey | None, compute: Callable[[], Frame]) -> Frame:
        """Frame of a read. It is computed, or its rows are already kept."""
        frame = compute()  # always: reading states what the session needs for these files, and costs little
        kept = None if key is None else self._kept.get(key)
        if kept is None or not kept.rows.is_shared:
            return frame
        if not kept.frames:
            kept.frames["rows"] = self._keep(kept, frame)
        return kept.frames["rows"]

    def call(self, key: RowsKey | None, call: Callable[[], Any]) -> Any:
        """Result of a task's function: called now, or by an earlier execution."""
        kept = None if key is None else self._kept.get(key)
        if kept is None:
            return call()
        if kept.frames:
            return kept.result
        result = call()
        frames = self._frames_of(result)
        if frames is None:
            return result
        runs_python = any(self._engine.frames.runs_python(f) for f in frames.values())
        kept.rows = kept.rows.knowing(runs_python)
        if kept.rows.is_shared:
            kept.frames = {name: self._keep(kept, frame) for name, frame in frames.items()}
            kept.result = kept.frames if isinstance(result, Mapping) else kept.frames[""]
            return kept.result
        return result

    def forget(self) -> None:
        """Forget the rows after a failure, so that neither a retry nor another execution depends on them."""
        for kept in self._kept.values():
            kept.release()

    def release_after(self, execution: str) -> None:
        """Release the rows that no later execution needs.

        Args:
            execution: name of the execution that has ended.
        """
        for kept in self._kept.values():
            kept.awaited.discard(execution)
            if not kept.awaited:
                kept.release()

    def close(self) -> None:
        """Release all kept rows."""
        self.forget()
        self._kept.clear()

    def _keep(self, kept: _Kept, frame: Frame) -> Frame:
        return kept.cleanup.enter_context(self._engine.frames.persisted_rows(frame))

    def _frames_of(self, result: Any) -> dict[str, Frame] | None:
        """Frames that a function has returned, by port; None if it has returned anything else."""
        frames = dict(result) if isinstance(result, Mapping) else {"": result}
        return frames if frames and all(self._engine.frames.is_frame(f) for f in frames.values()) else None


class SharedRowsOfTask:
    """What one task takes from the rows that its round shares, or computes for them.

    Args:
        of_round: the rows of the round; None if executions share nothing.
    """

    def __init__(self, of_round: SharedRowsOfRound | None) -> None:
        self._of_round = of_round
        self._keys: list[RowsKey] = []

    def read(self, read: Read, engine_read: Callable[[Read], Frame]) -> Frame:
        """Frame of a read of channels."""
        if self._of_round is None:
            return engine_read(read)
        return self._of_round.read(self._noted(read_key(read)), lambda: engine_read(read))

    def call(self, plan: RunPlan, workflowette: Workflowette, step: Step, arguments: Mapping[str, Any]) -> Any:
        """Result of the task's function for these arguments."""
        function = workflowette.task(step.task).function
        if self._of_round is None:
            return function(**arguments)
        return self._of_round.call(self._noted(task_key(plan, workflowette, step)), lambda: function(**arguments))

    def pop_facts(self) -> dict[str, Any]:
        """What the task has shared with other executions, or why not; empty if nothing could be shared."""
        keys, self._keys = self._keys, []
        decisions = [] if self._of_round is None else [d for d in self._of_round.decisions if d.key in keys]
        return {"shared_rows": [d.as_json() for d in decisions]} if decisions else {}

    def _noted(self, key: RowsKey | None) -> RowsKey | None:
        if key is not None and key not in self._keys:
            self._keys.append(key)
        return key


MAX_FEW_ROWS = 2_000
"""Rows up to which a channel counts as small. They are read in this process, because a tick has no time for Spark."""

_MAX_VERSIONS = 64
"""Versions of channels whose rows are kept in memory, most recently used."""

log = get_logger("nova_assets.execution")


class FewRowsReader:
    """Reads small channels, each version once."""

    def __init__(self, catalog: Catalog, engine: Engine) -> None:
        self._catalog = catalog
        self._engine = engine
        self._lock = Lock()
        self._rows_by_version: OrderedDict[tuple[str, int], FewRows | None] = OrderedDict()

    def at_pins(self, pins: Iterable[Pin]) -> FewRowsAtHeads:
        """The rows at the heads that an execution has pinned."""
        heads = {pin.channel: pin.head for pin in pins}
        return FewRowsAtHeads(self, lambda: heads)

    def at_newest_heads(self) -> FewRowsAtHeads:
        """The rows at the heads at the time of the first question."""
        return FewRowsAtHeads(self, self._catalog.scheduler.heads)

    def rows_at(self, channel: str, head: int) -> FewRows | None:
        """Rows of a channel at a head; None if they are many, or Python cannot represent a value.

        Raises: whatever prevents the rows from being read.
        """
        version = (channel, head)
        with self._lock:
            rows = self._rows_by_version.pop(version) if version in self._rows_by_version else self._read(channel, head)
            self._rows_by_version[version] = rows
            if len(self._rows_by_version) > _MAX_VERSIONS:
                self._rows_by_version.popitem(last=False)
            return rows

    def _read(self, channel: str, head: int) -> FewRows | None:
        read = modes.snapshot(self._catalog.histories.of(channel, head, back_to=head), head)
        if not isinstance(read.merge, Append | Upsert | Multiset) or count_rows(read) > MAX_FEW_ROWS:
            return None
        with self._engine.computation_scope():
            rows = self._engine.frames.to_arrow(self._engine.reader.fetch(read))
        from nova_assets.formats.python_values import to_python_rows

        try:
            return to_python_rows(rows)
        except NotSupported:
            return None


class FewRowsAtHeads:
    """Function from a channel to its rows at a certain head; None if they are many, or cannot be read now.

    Args:
        load_heads: function that returns the heads of the channels.

    Attributes:
        used: channel whose rows were asked for -> head. For a channel without data, the head is 0.
    """

    def __init__(self, reader: FewRowsReader, load_heads: Callable[[], Mapping[str, int]]) -> None:
        self._reader = reader
        self._load_heads = load_heads
        self._unreadable = set[str]()
        self.used: dict[str, int] = {}

    @cached_property
    def _heads(self) -> Mapping[str, int]:
        return self._load_heads()

    def __call__(self, channel: str) -> FewRows | None:
        head = self.used[channel] = self._heads.get(channel, 0)
        if not head or channel in self._unreadable:
            return None
        try:
            return self._reader.rows_at(channel, head)
        except Exception as error:  # a value that Python lacks, a damaged file: the task that reads the channel tells
            self._unreadable.add(channel)
            log.warning("the rows of channel %s do not limit what tasks read: %s", channel, error)
            return None
