"""What is due: whether a binding is to be executed now, again, later or not (Nova 2.3). Pure.

``decide_due`` decides for one partition of a binding that has a trigger. Sensors, ``nova run --due`` and the job
``nova_due`` read the state, ask, and carry out the answer. ``next_attempt_time`` decides on a further attempt, also for
partitions of datasets (``plan/tick``).

For each leaf of a trigger, a position records up to where it has fired: a head, a time, or a count of executions. A
leaf fires when its state has moved past its position. The positions are stored together with the firing, in one
compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from nova_assets.model.binding import Binding
from nova_assets.model.channel_state import UnreadData
from nova_assets.model.execution import Firing, FiringEnd, FiringRun
from nova_assets.model.period import period_seconds
from nova_assets.model.registered_definition import DefinitionKey, Statuses
from nova_assets.model.trigger import After, AllOf, AnyOf, Cron, Every, OnData, OnSealed, Trigger
from nova_assets.short_repr import short_repr

Positions = Mapping[str, Any]

MAX_BACKOFF_SECONDS = 3600.0

UNSEEN_CHANGE_INTERVAL = timedelta(seconds=30)
"""Time after which it is decided again for a binding that waits for a change that the catalog does not count."""

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
        count = state.finished.get((trigger.binding, trigger.status), 0)
        texts = (f"has {trigger.status}", f"has not {trigger.status}")
        return _evaluate_count(trigger, count, positions, trigger.binding, *texts)
    if isinstance(trigger, OnSealed):
        count = state.sealed.get(trigger.channel, 0)
        return _evaluate_count(trigger, count, positions, trigger.channel, "has a new seal", "has no new seal")
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
        (1 if last is None else min(int((now - last).total_seconds() // trigger.seconds), MAX_COUNTED_TIMES))
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


def _evaluate_count(trigger: Trigger, count: int, positions: Positions, subject: str, *texts: str) -> TriggerDecision:
    """Fire if a count has grown.

    Args:
        texts: what is said of the subject if it has grown, and if not.
    """
    due = count > positions.get(str(trigger), 0)
    return TriggerDecision(due, {str(trigger): count} if due else {}, f"{subject} {texts[0 if due else 1]}")


# pauses


def why_trigger_is_off(binding: Binding, statuses: Statuses) -> str:
    """Why nothing runs a binding automatically; empty if nothing prevents it.

    A binding waits if it, its trigger, its workflowette or a channel that it writes is paused or removed. A paused
    binding can still be run by hand.
    """
    if not statuses:
        return ""
    return why_bound_trigger_is_off(binding.name, binding.workflowette.name, (c.name for c in binding.writes), statuses)


def why_bound_trigger_is_off(
    binding: str, workflowette: str, written_channels: Iterable[str], statuses: Statuses
) -> str:
    """As ``why_trigger_is_off``, for a binding of which only the registered definition is known."""
    keys = [
        DefinitionKey("binding", binding),
        DefinitionKey("trigger", binding),
        DefinitionKey("workflowette", workflowette),
        *(DefinitionKey("channel", name) for name in written_channels),
    ]
    return next(filter(None, (why_is_off(key, statuses) for key in keys)), "")


def why_is_off(key: DefinitionKey, statuses: Statuses) -> str:
    """Whether a definition is paused or removed, by whom, and the command that changes it; empty if it is active."""
    status = statuses.get(key)
    if status is None:
        return ""
    if status.can_be_taken_back:
        return f"{key} is {status}: nova remove {key} --undo"
    return f"{key} is {status}" + ("" if status.is_removed else f": nova resume {key}")


# attempts


def next_attempt_time(
    failures: int, failed_at: datetime, *, attempts: int, backoff: float, attempt: int | None = None
) -> datetime | None:
    """Earliest time of the next attempt after a failure; None if no attempt is left.

    The delay doubles with each attempt. Its maximum is one hour, or ``backoff`` if that is longer.

    Args:
        failures: number of failed attempts.
        failed_at: time of the last failure.
        attempts: maximum number of attempts.
        backoff: seconds before the second attempt.
        attempt: number of the last attempt, if that is not the number of failures: runs that never began count as no
            failure and may be many.
    """
    if failures >= attempts:
        return None
    doublings = min((failures if attempt is None else attempt) - 1, 60)
    return failed_at + timedelta(seconds=min(backoff * 2.0**doublings, max(backoff, MAX_BACKOFF_SECONDS)))


# bindings


@dataclass(frozen=True, slots=True)
class DueState:
    """State of one partition of a binding on which ``decide_due`` is based.

    Args:
        trigger: state of the trigger.
        last: last firing of the binding in this partition; None before the first.
        runs: runs of this firing, if it has not ended. Their order does not matter.
        live: the execution that another one would have to wait for; empty if there is none.
        off: why nothing runs the binding now; empty if nothing prevents it.
        run_appears_within: time after a firing in which its run may have been requested without being among ``runs``.
    """

    trigger: TriggerState
    last: Firing | None = None
    runs: tuple[FiringRun, ...] = ()
    live: str = ""
    off: str = ""
    run_appears_within: timedelta = timedelta()


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
        end: how the last firing ends; None if it has ended before or goes on.
        decide_again_at: time at which to decide again; None if only a change in the catalog can make the binding due.
    """

    __repr__ = short_repr

    binding: Binding
    partition: str
    action: Literal["none", "wait", "fire", "run", "retry"]
    why: str = ""
    firing: Firing | None = None
    positions: Positions = field(default_factory=dict)
    end: FiringEnd | None = None
    decide_again_at: datetime | None = None

    @property
    def is_execution(self) -> bool:
        return self.action in ("fire", "run", "retry")

    @property
    def name(self) -> str:
        """Binding and partition, as people write them."""
        return f"{self.binding.name} {self.partition}".rstrip()


def decide_due(binding: Binding, partition: str, state: DueState) -> DueStep:
    """Decide what is to be done now for one partition of a binding that has a trigger.

    A firing goes on until it is committed, canceled, or has no attempt left. Only then the trigger decides on the next.

    Args:
        partition: partition of the binding; empty if it has none.
        state: state read at one time.
    """
    assert binding.when is not None
    now, last = state.trigger.now, state.last
    step = DueStep(binding, partition, "none", firing=last, decide_again_at=now)
    if last is not None and last.state == "requested":
        step = _continue_firing(step, last, state)
        if step.end is None:
            return step
    decision = decide_trigger(binding.when, last.positions if last is not None else {}, state.trigger)
    if state.off:
        return _wait_for_person(replace(step, action="wait" if decision.due else "none"), state)
    if not decision.due:
        return replace(step, action="none", why=decision.why, decide_again_at=decision.due_at)
    if state.live:
        return replace(step, action="wait", why=state.live)
    return replace(step, action="fire", why=decision.why, positions=decision.positions)


def _wait_for_person(step: DueStep, state: DueState) -> DueStep:
    return replace(step, why=state.off, decide_again_at=state.trigger.now + UNSEEN_CHANGE_INTERVAL)


def _continue_firing(step: DueStep, firing: Firing, state: DueState) -> DueStep:
    """Next step of a firing that has not ended, or its end.

    The current attempt is over if its run has ended, or if as many attempts have failed in any process. An execution
    counts as failed as for cascades: not if it was planned again after a conflict. A run of Dagster that was killed
    before its execution began does not count, because that tells nothing about the binding. So the number of the
    attempt may be larger than that of the failures. An execution of another process then ends no attempt, but the next
    one still comes after the delay.
    """
    wait, now = replace(step, action="wait"), state.trigger.now
    if state.off:
        return _wait_for_person(wait, state)
    active = next((r for r in state.runs if r.state == "active"), None)
    if active is not None:
        return replace(wait, why=f"{active.name} of firing {firing.n} is under way")
    if any(r.state == "succeeded" for r in state.runs):
        return replace(step, end=FiringEnd("committed"))
    failures = sum(r.failures for r in state.runs)
    is_over = failures >= min(firing.attempt, step.binding.attempts) or any(
        r.run_key == firing.run_key for r in state.runs
    )
    if not is_over and now - firing.at < state.run_appears_within:
        return replace(wait, why=f"the run of firing {firing.n} has just been requested")
    if state.live:
        return replace(wait, why=state.live)
    failed = [r for r in state.runs if r.failures]
    if not is_over and not failed:
        return replace(step, action="run", why=firing.why)
    latest = max(state.runs if is_over else failed, key=lambda r: r.ended_at)
    if is_over and latest.state == "canceled":  # a person canceled the run, so it must not restart
        return replace(step, end=FiringEnd("abandoned", f"{latest.name} was canceled"))
    again_at = next_attempt_time(
        failures,
        latest.ended_at,
        attempts=step.binding.attempts,
        backoff=period_seconds(step.binding.backoff) or 0,
        attempt=firing.attempt if is_over else firing.attempt - 1,
    )
    if again_at is None:
        why = f"{failures} {latest.kind}s failed, the last of them {latest.id}"
        texts = (why, f"{failures} failed {latest.kind}s, the last of them {latest.id}")
        return replace(step, end=FiringEnd("abandoned", *texts))
    if now < again_at:
        next_text = f"the next attempt comes at {again_at:%H:%M:%S} UTC"
        return replace(wait, why=f"{latest.name} of firing {firing.n} failed; {next_text}")
    return replace(step, action="retry" if is_over else "run", why=firing.why)
