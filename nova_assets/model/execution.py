"""Executions: one run of a binding (or one insert), from begin to commit or abort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from nova_assets.model.commit import Commit
from nova_assets.model.partitions import WHOLE
from nova_assets.model.read_strategy import CostEstimate
from nova_assets.short_repr import short_repr

ExecutionState = Literal["running", "failed", "committed", "aborted"]
"""``running`` holds a lease; ``failed`` keeps pins and staged files until resumed, expired or superseded (R4)."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What an execution reads of one channel, fixed when it begins (R4).

    Args:
        channel: its name.
        head: the channel's head then.
        cursor: the binding's cursor then; None where the channel is not consumed as ``new``.
        partition: the scope in which the channel is read: one partition, some of its dimensions, or all.
        has_run: the binding has a cursor. At 0, it has run when the channel was empty; without one it has never run.
    """

    channel: str
    head: int
    cursor: int | None = None
    partition: str = WHOLE
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """A request to open an execution.

    Args:
        execution_id: made by the caller, so that it can ask after an unknown outcome.
        binding: None for an insert.
        partition: of the binding.
        pinned_channels: channels whose heads are pinned.
        cursor_channels: those of them whose cursors are pinned as well.
        scope_by_channel: channel -> the scope in which it is read, where that is not all of it.
        owner: who holds the lease: ``host:pid:start`` or ``dagster:run``.
        lease: seconds.
        dead: owners that are known to be gone, whose leases need not be waited for.
        pinned_version_by_channel: channel -> the number that is pinned, instead of its head.
        changes_after_by_channel: channel -> the number at which its changes begin, of a reader that has no cursor.
        purpose: what it is about to do to a channel, where it does not execute a binding: an action of the timeline, or
            ``read``.
    """

    __repr__ = short_repr

    execution_id: str
    binding: str | None
    pinned_channels: tuple[str, ...]
    cursor_channels: tuple[str, ...] = ()
    partition: str = WHOLE
    owner: str = ""
    lease: float = 120.0
    run_id: str | None = None
    firing_id: str | None = None
    dead: frozenset[str] = frozenset()
    scope_by_channel: Mapping[str, str] = field(default_factory=dict, hash=False)
    pinned_version_by_channel: Mapping[str, int] = field(default_factory=dict, hash=False)
    changes_after_by_channel: Mapping[str, int] = field(default_factory=dict, hash=False)
    purpose: str = "commit"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task of an execution did.

    Args:
        task: its name.
        seconds: wall time, writing included; a frame that is passed on costs its reader.
        read: input -> rows in the blocks that were opened; None where rows are passed on unread.
        wrote: port -> rows written; None where a frame was passed on.
        skipped: it had nothing new and said ``skip_if_no_new``.
        ways: input -> how it was read, and what that was expected to cost; a frame that the task does not use costs
            nothing.
    """

    __repr__ = short_repr

    task: str
    seconds: float
    read: Mapping[str, int | None]
    wrote: Mapping[str, int | None]
    skipped: bool = False
    ways: Mapping[str, CostEstimate] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "seconds": round(self.seconds, 3),
            "read": dict(self.read),
            "wrote": dict(self.wrote),
            "skipped": self.skipped,
            "ways": {name: e.as_json() for name, e in self.ways.items()},
        }


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far the engine has come with what a task is waiting for.

    Args:
        task: of the workflowette.
        done, total: the engine's own tasks in its running stages; more may follow.
    """

    task: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.task}: {self.done} of {self.total} Spark tasks done"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What one check of an execution found.

    Args:
        check: its name.
        channel: the one that it is about.
        blocking: whether a failure keeps everything from being published.
        found: one line for a person.
        metadata: what the check wants to have kept.
        skipped: nothing was written that it could have looked at.
    """

    __repr__ = short_repr

    check: str
    channel: str
    passed: bool
    blocking: bool
    seconds: float
    found: str | None = None
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    skipped: bool = False

    @property
    def blocks_commit(self) -> bool:
        """Whether, by this, nothing may be published."""
        return self.blocking and not self.passed


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution as the catalog has it.

    Args:
        epoch: goes up with each resumption; whoever holds an older one can no longer commit (R6).
        pins: channel -> pin.
        lease_until: when others may take over, if it is not renewed.
        error: why it failed or was aborted.
        commit_id: of the commit that ended it.
        purpose: what it does to a channel.
        commit, tasks, checks: that commit, what each task did and each check found, where this process carried them
            out.
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
    commit_id: str | None = None
    run_id: str | None = None
    firing_id: str | None = None
    purpose: str = "commit"
    commit: Commit | None = None
    tasks: tuple[TaskReport, ...] = ()
    checks: tuple[CheckReport, ...] = ()
