"""What is due: trigger decisions (Nova 2.3), and what is to be done for a binding and its firings. Pure.

The planner takes the state of triggers, and returns a decision with new positions. For each leaf of a trigger, a
position records up to where it has fired: a head, a time, or a count of executions. A leaf fires when its state has
moved past its position. The positions are stored together with the firing, in one compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import UnreadData
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.period import period_seconds
from nova_assets.model.trigger import After, AllOf, AnyOf, Cron, Every, OnData, OnSealed, Trigger
from nova_assets.short_repr import short_repr

Positions = Mapping[str, Any]

MAX_BACKOFF_SECONDS = 3600.0

MAX_COUNTED_TIMES = 100
"""Upper limit for counting missed times of a schedule."""


@dataclass(frozen=True, slots=True)
class TriggerState:
    """State on which a trigger decision is based.

    Args:
        now: current time, with a zone.
        registered_at: registration time of the binding, from which schedules count.
        heads: channel -> newest sequence number that added data. Dropping a partition adds no data (R19).
        cursors: channel -> cursor of the binding, if it has one. Data before the cursor does not fire.
        finished: (binding, status) -> number of executions that reached the status; never decreases.
        sealed: channel -> number of seals; never decreases.
        unread: (channel, number) -> data after that number, up to the head. Called only for triggers with thresholds.
    """

    now: datetime
    registered_at: datetime
    heads: Mapping[str, int] = field(default_factory=dict)
    cursors: Mapping[str, int] = field(default_factory=dict)
    finished: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sealed: Mapping[str, int] = field(default_factory=dict)
    unread: Callable[[str, int], UnreadData] = lambda channel, after: UnreadData()


@dataclass(frozen=True, slots=True)
class TriggerDecision:
    """Whether to fire, why, and the positions to store if so.

    Args:
        due_at: time at which a trigger that is not due becomes due by itself. None if only a change in the catalog can
            make it due. A part of the trigger may be due at this time, and the whole trigger may not.
    """

    due: bool
    positions: Positions
    why: str
    due_at: datetime | None = None


def decide_trigger(trigger: Trigger, positions: Positions, state: TriggerState) -> TriggerDecision:
    """Decide whether a trigger fires.

    Args:
        trigger: trigger of the binding.
        positions: positions stored with its last firing; empty before the first.
        state: state read from the catalog at one time.
    """
    decision = _evaluate(trigger, positions, state)
    return replace(decision, positions={**positions, **decision.positions})


def _evaluate(trigger: Trigger, positions: Positions, state: TriggerState) -> TriggerDecision:
    if isinstance(trigger, AllOf | AnyOf):
        parts = [_evaluate(p, positions, state) for p in trigger.parts]
        due = all(p.due for p in parts) if isinstance(trigger, AllOf) else any(p.due for p in parts)
        new_positions = {key: position for p in parts if p.due for key, position in p.positions.items()}
        conjunction = " and " if isinstance(trigger, AllOf) else " or "
        due_at = min((p.due_at for p in parts if p.due_at is not None), default=None)
        return TriggerDecision(due, new_positions, conjunction.join(p.why for p in parts if p.due or not due), due_at)
    if isinstance(trigger, OnData):
        return _evaluate_on_data(trigger, positions, state)
    if isinstance(trigger, Every | Cron):
        return _evaluate_time_trigger(trigger, positions, state)
    if isinstance(trigger, After):
        return _evaluate_after(trigger, positions, state)
    if isinstance(trigger, OnSealed):
        return _evaluate_on_sealed(trigger, positions, state)
    return TriggerDecision(False, {}, f"unknown trigger {trigger!r}")


def _evaluate_on_data(trigger: OnData, positions: Positions, state: TriggerState) -> TriggerDecision:
    new_positions: dict[str, Any] = {}
    reached: list[str] = []
    not_reached: list[str] = []
    too_old_at: list[datetime] = []
    for channel in trigger.channels:
        key, head = trigger.position_key(channel), state.heads.get(channel, 0)
        read_number = max(positions.get(key, 0), state.cursors.get(channel, 0))
        if head <= read_number:
            continue
        is_reached, reason = (True, f"{channel} is at {head}")
        if trigger.has_thresholds:
            unread = state.unread(channel, read_number)
            is_reached, reason = (
                _reaches_threshold(trigger, unread, state.now),
                f"{channel} has {unread.describe(state.now)} unread",
            )
            max_age = period_seconds(trigger.older_than)
            if not is_reached and max_age is not None and unread.oldest is not None:
                too_old_at.append(unread.oldest + timedelta(seconds=max_age))
        (reached if is_reached else not_reached).append(reason)
        if is_reached:
            new_positions[key] = head
    return TriggerDecision(
        bool(reached),
        new_positions,
        ", ".join(reached or not_reached) or f"no new data in {', '.join(trigger.channels)}",
        min(too_old_at, default=None),
    )


def _reaches_threshold(trigger: OnData, unread: UnreadData, now: datetime) -> bool:
    if not unread.blocks:
        return False
    max_age = period_seconds(trigger.older_than)
    if max_age is not None and unread.oldest is not None and (now - unread.oldest).total_seconds() >= max_age:
        return True
    return any(getattr(unread, what) >= n for what, n in trigger.thresholds.items())


def _evaluate_time_trigger(trigger: Every | Cron, positions: Positions, state: TriggerState) -> TriggerDecision:
    key, now = str(trigger), state.now
    last = datetime.fromisoformat(positions[key]) if key in positions else None
    times = (
        _count_periods(trigger, last, now)
        if isinstance(trigger, Every)
        else _count_cron_times(trigger, last or state.registered_at, now)
    )
    if times <= 0:  # clocks may go back
        due_at = _next_time(trigger, last or state.registered_at)
        return TriggerDecision(False, {}, f"{key} is next due at {due_at:%Y-%m-%d %H:%M:%S %Z}", due_at)
    often = f"{MAX_COUNTED_TIMES} times or more" if times >= MAX_COUNTED_TIMES else f"{times} times"
    why = (
        f"{key} is due"
        if times == 1
        else f"{key} was due {often} since {last or state.registered_at:%Y-%m-%d %H:%M} UTC"
    )
    return TriggerDecision(True, {key: now.isoformat()}, why if times == 1 else f"{why}, which gives one firing")


def _count_periods(trigger: Every, last: datetime | None, now: datetime) -> int:
    return 1 if last is None else min(int((now - last).total_seconds() // trigger.seconds), MAX_COUNTED_TIMES)


def _count_cron_times(trigger: Cron, last: datetime, now: datetime) -> int:
    """Number of times of a cron expression after ``last``, up to ``now``, at most ``MAX_COUNTED_TIMES``."""
    from croniter import croniter

    times = croniter(trigger.expression, last.astimezone(ZoneInfo(trigger.tz)))
    count = 0
    while count < MAX_COUNTED_TIMES and times.get_next(datetime) <= now:
        count += 1
    return count


def _next_time(trigger: Every | Cron, last: datetime) -> datetime:
    from croniter import croniter

    if isinstance(trigger, Every):
        return last + timedelta(seconds=trigger.seconds)
    moment: datetime = croniter(trigger.expression, last.astimezone(ZoneInfo(trigger.tz))).get_next(datetime)
    return moment


def next_retry_time(binding: Binding, firing: Firing, last_run_ended_at: datetime) -> datetime:
    """Earliest time for the next run of a firing whose last run failed.

    The delay doubles with each run. Its maximum is one hour, or ``backoff`` if that is longer, because runs that never
    begin count as no attempt and may be many.
    """
    backoff = period_seconds(binding.backoff) or 0
    delay = min(backoff * 2.0 ** min(firing.attempt - 1, 60), max(backoff, MAX_BACKOFF_SECONDS))
    return last_run_ended_at + timedelta(seconds=delay)


def _evaluate_on_sealed(trigger: OnSealed, positions: Positions, state: TriggerState) -> TriggerDecision:
    key, count = str(trigger), state.sealed.get(trigger.channel, 0)
    due = count > positions.get(key, 0)
    return TriggerDecision(due, {key: count} if due else {}, f"{trigger.channel} has {'a' if due else 'no'} new seal")


def _evaluate_after(trigger: After, positions: Positions, state: TriggerState) -> TriggerDecision:
    key, count = str(trigger), state.finished.get((trigger.binding, trigger.status), 0)
    due = count > positions.get(key, 0)
    return TriggerDecision(
        due, {key: count} if due else {}, f"{trigger.binding} {'has' if due else 'has not'} {trigger.status}"
    )


@dataclass(frozen=True, slots=True)
class FiringStep:
    """What is to be done for a requested firing.

    Args:
        action: ``run`` carries out its execution, ``retry`` carries it out in the next attempt, ``wait`` does nothing
            now, and ``abandon`` gives the firing up.
        why: reason to wait or to give up; empty otherwise.
    """

    action: Literal["run", "retry", "wait", "abandon"]
    why: str = ""


def next_firing_step(
    binding: Binding, firing: Firing, executions: Sequence[Execution], live: Execution | None, now: datetime
) -> FiringStep:
    """The next step of a requested firing, by the same rules as under Dagster.

    Args:
        executions: executions that this firing has requested, latest first.
        live: execution of the binding in the firing's partition whose owner may be alive; None if there is none.
    """
    if live is not None:
        return FiringStep("wait", f"execution {live.id} of {live.owner} is alive")
    ended = [e for e in executions if e.state in ("failed", "aborted")]
    if len(ended) < firing.attempt:
        return FiringStep("run")
    if firing.attempt >= binding.attempts:
        return FiringStep("abandon", f"{firing.attempt} executions failed, the last of them {ended[0].id}")
    again_at = next_retry_time(binding, firing, ended[0].finished_at or ended[0].started_at)
    if now < again_at:
        return FiringStep("wait", f"execution {ended[0].id} failed; the next attempt comes at {again_at:%H:%M:%S} UTC")
    return FiringStep("retry")


@dataclass(frozen=True, slots=True)
class DueStep:
    """What is to be done now for one partition of a binding.

    Args:
        partition: partition of the binding; empty if the binding has none.
        action: ``fire`` records a firing and executes the binding; ``run`` executes it for the firing that waits;
            ``retry`` is the next attempt of that firing; ``wait`` does nothing although something is due; ``none``
            means that nothing is due.
        why: reason why the binding is due, or why it waits.
        firing: its last firing; None before the first.
        positions: positions to store with a new firing.
        gives_up: why the last firing is given up; empty if it is not.
        due_at: time at which the trigger becomes due by itself; None if only a change in the catalog can make it due.
    """

    __repr__ = short_repr

    binding: Binding
    partition: str
    action: Literal["none", "wait", "fire", "run", "retry"]
    why: str = ""
    firing: Firing | None = None
    positions: Positions = field(default_factory=dict)
    gives_up: str = ""
    due_at: datetime | None = None

    @property
    def is_execution(self) -> bool:
        return self.action in ("fire", "run", "retry")

    @property
    def name(self) -> str:
        """Binding and partition, as people write them."""
        return f"{self.binding.name} {self.partition}".rstrip()


def decide_due_step(
    binding: Binding,
    partition: str,
    state: TriggerState,
    last: Firing | None,
    executions: Sequence[Execution],
    live: Execution | None,
    off: str,
) -> DueStep:
    """Decide what is to be done now for one partition of a binding that has a trigger.

    Args:
        last: last firing of the binding in this partition.
        executions: executions that this firing has requested, latest first.
        live: execution of the partition whose owner may be alive.
        off: why nothing runs the binding now; empty if nothing prevents it.
    """
    assert binding.when is not None
    gives_up = ""
    if last is not None and last.state == "requested":
        if off:
            return DueStep(binding, partition, "wait", off, last)
        step = next_firing_step(binding, last, executions, live, state.now)
        if step.action == "wait":
            return DueStep(binding, partition, "wait", step.why, last)
        if step.action != "abandon":
            return DueStep(binding, partition, step.action, last.why, last)
        gives_up = step.why
    decision = decide_trigger(binding.when, last.positions if last is not None else {}, state)
    if not decision.due:
        return DueStep(binding, partition, "none", decision.why, last, gives_up=gives_up, due_at=decision.due_at)
    if off:
        return DueStep(binding, partition, "wait", off, last, gives_up=gives_up)
    if live is not None:
        waits = f"execution {live.id} of {live.owner} is alive"
        return DueStep(binding, partition, "wait", waits, last, gives_up=gives_up)
    return DueStep(binding, partition, "fire", decision.why, last, decision.positions, gives_up)
