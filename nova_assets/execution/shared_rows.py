"""Rows that several executions of this process share: computed by the first, and kept until the last is done.

The key of the rows is looked up when an execution needs them. An execution that reads other blocks than were planned,
because a channel has moved meanwhile, therefore computes its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from nova_assets.model.engine import Engine, Frame
from nova_assets.model.reads import Read
from nova_assets.model.workflowette import Workflowette
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
