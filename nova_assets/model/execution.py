"""Executions: one run of a binding, or one insert, from begin to commit or abort. Firings and cursor switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal

from nova_assets.masking import mask_nested
from nova_assets.model.commit import Commit
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.model.partitions import WHOLE
from nova_assets.model.read_strategy import CostEstimate
from nova_assets.short_repr import short_repr

ExecutionState = Literal["running", "failed", "committed", "aborted"]
"""A ``running`` execution has a lease. A ``failed`` one keeps pins and staged files until resumed, expired or
superseded (R4).
"""


@dataclass(frozen=True, slots=True)
class Pin(JsonForm):
    """Versions of one channel that an execution reads, fixed at begin (R4).

    Args:
        channel: name of the channel.
        head: head of the channel at begin.
        cursor: cursor of the binding at begin, or the version that it read last; None if the channel is not consumed as
            ``new``.
        partition: scope in which the channel is read: one partition, some of its dimensions, or all.
        has_run: whether the binding has read the channel before. A cursor of 0 means that the binding ran on an empty
            channel; without a cursor it has never run.
    """

    channel: str
    head: int
    cursor: int | None = None
    partition: str = WHOLE
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """Request to open an execution.

    Args:
        execution_id: chosen by the caller, who can look it up after an unknown outcome.
        binding: None for an insert.
        partition: partition of the binding.
        pinned_channels: channels whose heads are pinned.
        cursor_channels: the pinned channels whose cursors are pinned too.
        scope_by_channel: channel -> the scope in which it is read, if that is not the whole channel.
        owner: holder of the lease: ``host:pid:start`` or ``dagster:run``.
        lease_seconds: duration in seconds.
        dead_owners: owners that are known to have ended, whose leases need not expire first.
        pinned_version_by_channel: channel -> the version to pin instead of its head.
        changes_after_by_channel: channel -> the version after which its changes begin, for a reader without a cursor.
        last_read_version_by_channel: channel -> the version that the last commit of the binding's partition read, for
            changes without a cursor.
        purpose: planned operation if no binding is executed: an action of the timeline, or ``read``.
        definition_fingerprint: fingerprint of the binding's definition, by which the execution names its version.
    """

    __repr__ = short_repr

    execution_id: str
    binding: str | None
    pinned_channels: tuple[str, ...]
    cursor_channels: tuple[str, ...] = ()
    partition: str = WHOLE
    owner: str = ""
    lease_seconds: float = 120.0
    run_id: str | None = None
    firing_id: str | None = None
    dead_owners: frozenset[str] = frozenset()
    scope_by_channel: Mapping[str, str] = field(default_factory=dict, hash=False)
    pinned_version_by_channel: Mapping[str, int] = field(default_factory=dict, hash=False)
    changes_after_by_channel: Mapping[str, int] = field(default_factory=dict, hash=False)
    last_read_version_by_channel: Mapping[str, int] = field(default_factory=dict, hash=False)
    purpose: str = "commit"
    definition_fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class TaskReport(JsonForm):
    """Metrics of one task of an execution.

    Args:
        task: name of the task.
        seconds: wall time including writing. A frame that is passed on unevaluated is charged to its reader.
        read: input -> rows in the blocks that were opened; None if rows are passed on unread.
        wrote: port -> rows written; None if a frame was passed on.
        skipped: the task had no new data and declares ``skip_if_no_new``.
        estimate_by_input: input -> read strategy with its estimated cost. A frame that the task does not use costs
            nothing.
        facts: what the task reported itself, such as a decision with its reason.
        cpu_seconds: CPU time of this process and of Spark meanwhile, including writing; None if it is not known. Tasks
            that run at the same time in one process are charged for each other.
    """

    __repr__ = short_repr

    task: str
    seconds: float = field(metadata=json_key(digits=3))
    read: Mapping[str, int | None]
    wrote: Mapping[str, int | None]
    skipped: bool = False
    estimate_by_input: Mapping[str, CostEstimate] = field(default_factory=dict, metadata=json_key("ways"))
    facts: Mapping[str, Any] = field(default_factory=dict, metadata=json_key(omit_default=True))
    cpu_seconds: float | None = field(default=None, metadata=json_key(digits=3))


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of the engine on the task that is running.

    Args:
        task: task of the workflowette.
        done, total: tasks of the engine in its running stages. More stages may follow.
    """

    task: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.task}: {self.done} of {self.total} Spark tasks done"


@dataclass(frozen=True, slots=True)
class CheckReport(JsonForm):
    """Result of one data check of an execution. Secrets are masked in its texts.

    Args:
        check: name of the check.
        channel: channel under test.
        blocking: whether a failure prevents the commit.
        found: the result in one readable line.
        metadata: values that the check stores with its result.
        skipped: the execution wrote nothing that the check could test.
    """

    __repr__ = short_repr

    check: str
    channel: str
    passed: bool
    blocking: bool
    seconds: float = field(metadata=json_key(digits=3))
    found: str | None = None
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    skipped: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", mask_nested(self.found))
        object.__setattr__(self, "metadata", mask_nested(dict(self.metadata)))

    @property
    def blocks_commit(self) -> bool:
        """Whether this result prevents the commit."""
        return self.blocking and not self.passed


@dataclass(frozen=True, slots=True)
class Execution(JsonForm):
    """An execution as recorded in the catalog.

    Args:
        epoch: number that increases each time the execution is resumed. A process with an older epoch can no longer
            commit (R6).
        pins: channel -> pinned versions of the channel.
        lease_until: end of the lease. Another process may take over the execution after this time, unless the lease is
            renewed.
        error: reason of a failure or an abort.
        commit_id: id of the commit that ended the execution.
        purpose: name of the operation, if the execution is an operation on a channel and not of a binding.
        version: version of the binding's definition that ran; None for other executions, and those of older catalogs.
        commit, tasks, checks: the commit and the reports of tasks and checks, if this process executed them.
    """

    __repr__ = short_repr

    id: str
    binding: str | None
    partition: str
    state: ExecutionState
    epoch: int
    pins: Mapping[str, Pin]
    owner: str
    started_at: datetime
    lease_until: datetime
    finished_at: datetime | None = None
    error: str | None = None
    commit_id: str | None = field(default=None, metadata=json_key("commit"))
    run_id: str | None = None
    firing_id: str | None = field(default=None, metadata=json_key("firing"))
    purpose: str = "commit"
    version: int | None = None
    commit: Commit | None = field(default=None, metadata=NOT_IN_JSON)
    tasks: tuple[TaskReport, ...] = field(default=(), metadata=NOT_IN_JSON)
    checks: tuple[CheckReport, ...] = field(default=(), metadata=NOT_IN_JSON)

    def as_json(self) -> dict[str, Any]:
        """Execution as the service sends it: without its owner, and with a list of pins, by channel."""
        form: dict[str, Any] = super(Execution, self).as_json()
        del form["owner"]
        return {**form, "pins": sorted(form["pins"].values(), key=itemgetter("channel"))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Execution:
        pins = {p["channel"]: p for p in data["pins"]}
        return super(Execution, cls).from_json({**data, "owner": "", "pins": pins})

    def has_valid_lease(self, now: datetime) -> bool:
        """Whether the execution is running and its lease has not expired. Its owner may be dead all the same."""
        return self.state == "running" and self.lease_until >= now

    def has_lapsed(self, now: datetime) -> bool:
        """Whether the lease of an execution that is running or failed has expired. Until then, a failed execution can
        be resumed.
        """
        return self.state in ("running", "failed") and self.lease_until < now


@dataclass(frozen=True, slots=True)
class Firing(JsonForm):
    """One firing of a trigger: a row of the outbox that waits for an execution.

    Args:
        n: counts the firings of the binding in its partition, from 1.
        positions: trigger leaf -> position up to which it has fired.
        attempt: counts the runs requested for this firing, from 1.
        state: ``requested``, ``committed`` or ``abandoned``.
        why: readable reason of the firing, or of its abandonment.
    """

    __repr__ = short_repr

    id: str
    binding: str
    n: int
    positions: Mapping[str, Any]
    attempt: int
    state: str
    at: datetime
    partition: str = WHOLE
    why: str = ""

    @property
    def run_key(self) -> str:
        where = f"[{self.partition}]" if self.partition else ""
        return f"{self.binding}{where}#{self.n}#{self.attempt}"


FiringRunState = Literal["active", "succeeded", "canceled", "failed", "open"]


@dataclass(frozen=True, slots=True)
class FiringRun:
    """A run of a firing: a run of Dagster, or an execution in another process.

    Args:
        kind: ``run`` of Dagster, or ``execution``.
        state: ``failed`` also if it was aborted; ``open`` for an execution that has not ended, whose owner may be dead.
        ended_at: time of its end, or of its begin if it has not ended.
        failures: number of failed attempts for which it counts.
        run_id: run of Dagster that carried out the execution.
        run_key: key under which a trigger requested the run; empty for executions.
    """

    __repr__ = short_repr

    kind: Literal["run", "execution"]
    id: str
    state: FiringRunState
    ended_at: datetime
    failures: int = 0
    run_id: str | None = None
    run_key: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class FiringEnd:
    """End of a firing.

    Args:
        why: why it is abandoned; empty if it is committed.
        failures: description of the failed runs that left no attempt; empty if something else ended it.
    """

    state: Literal["committed", "abandoned"]
    why: str = ""
    failures: str = ""

    def describe(self, firing: Firing) -> str:
        if self.state == "committed":
            return f"firing {firing.n} is done"
        how = f" after {self.failures}; after a repair, run the binding by hand" if self.failures else f": {self.why}"
        return f"firing {firing.n} of {firing.binding} is abandoned{how}"


SwitchTarget = Literal["whole", "partitions"]


@dataclass(frozen=True, slots=True)
class CursorPosition:
    """One cursor as stored in the catalog, for a partition of the binding and a partition of the channel."""

    channel: str
    seq: int
    partition: str = WHOLE
    channel_partition: str = WHOLE


@dataclass(frozen=True, slots=True)
class CursorSwitch:
    """Replacement of the cursors of a binding.

    Args:
        before: cursors that must be unchanged when they are replaced.
        after: the new cursors; equal to ``before`` if the binding already runs in the target form.
    """

    binding: str
    to: SwitchTarget
    before: tuple[CursorPosition, ...]
    after: tuple[CursorPosition, ...]
