"""``nova plan`` and ``nova run``: what a binding would do, and doing it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import (
    Grid,
    block_json,
    iso,
    name_of,
    number,
    plural,
    progress,
    read_as,
    seconds,
    size,
    summarised,
)
from nova_assets.errors import NovaError
from nova_assets.execution.trigger_state import check_has_partitions
from nova_assets.model import reads
from nova_assets.model.execution import CheckReport, Execution
from nova_assets.model.read_strategy import Way
from nova_assets.model.reads import FromPort, Port, Read
from nova_assets.plan.read_strategy import best, ways
from nova_assets.plan.run import Input, RunPlan, Step
from nova_assets.store.store import Store


def which_partitions(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what a run is for: ``--partition``, ``--missing`` or ``--whole``."""
    for option in (
        click.option(
            "--whole", is_flag=True, help="All partitions as one execution, which then keeps a cursor for all."
        ),
        click.option("--missing", is_flag=True, help="Every partition that has unread data, one after the other."),
        click.option(
            "--partition",
            "partitions",
            metavar="COL=VALUE[/…]",
            multiple=True,
            help="Where the binding is partitioned; may be given several times.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class _Asked:
    """What a run is for, as the options say it."""

    partitions: tuple[str, ...]
    missing: bool
    whole: bool

    def __post_init__(self) -> None:
        if self.missing + self.whole + bool(self.partitions) > 1:
            raise click.UsageError("--partition, --missing and --whole exclude each other")

    @property
    def is_one(self) -> bool:
        """Whether it is for one execution, whose answer is an object of its own."""
        return not self.missing and len(self.partitions) <= 1

    def of(self, store: Store, binding: str) -> list[str]:
        """The partitions, by name, each once; the whole where none is named."""
        if self.missing:
            check_has_partitions(store.project.binding(binding))
            return store.unread(binding)
        bound = store.project.binding(binding)
        return list(dict.fromkeys(bound.partition(p) for p in self.partitions or ("",)))


@click.command(cls=NovaCommand)
@click.argument("binding")
@which_partitions
@click.pass_obj
def plan(deployment: Deployment, binding: str, partitions: tuple[str, ...], missing: bool, whole: bool) -> Answer:
    """Show what running BINDING now would do: its tasks in order, what each reads, what it writes, and what the commit
    moves and requires. Nothing is opened, pinned or changed. What a run would refuse before its first task is refused
    here, too.

    \b
    JSON: {"binding", "partition", "pins": {CHANNEL: {"head", "cursor"}},
           "steps": [{"task", "after", "reads": [{"input", "channel", "mode", "by": {MODE:
             {"read", "as", "blocks", "files", "rows", "bytes", "ways": [{"way", "rows", "bytes",
             "seconds"}]}}}], "writes": [{"port",
             "channel", "kind", "handover"}]}],
           "cursors": [{"channel", "from", "to"}], "requires": [{"channel", "head"}]}
    With --missing or several --partition: {"binding", "plans": [one for each]}.
    """
    return _plan(deployment, binding, _Asked(partitions, missing, whole), f"nova plan {binding}")


def _plan(deployment: Deployment, binding: str, asked: _Asked, command: str) -> Answer:
    deployment.require_project(command)
    with deployment.look(with_project=True) as store:
        planned = [store.plan(binding, p, whole=asked.whole) for p in asked.of(store, binding)]
        trigger, forced = store.project.binding(binding).when, store.engine.way
    when = "run by hand" if trigger is None else f"when {trigger}"

    def show(console: Console) -> None:
        for n, one in enumerate(planned):
            if n:
                console.print()
            _show_plan(console, one, when, forced)
        if not planned:
            console.print(f"{binding}: no partition has unread data")

    plans = [p.as_json() for p in planned]
    return Answer(plans[0] if asked.is_one else {"binding": binding, "plans": plans}, show)


@click.command(cls=NovaCommand)
@click.argument("binding")
@which_partitions
@click.option("--resume", metavar="ID", help="Go on with a failed execution, with what it had pinned and staged.")
@click.option("--dry-run", is_flag=True, help="Show the plan, as nova plan does; change nothing.")
@click.pass_obj
def run(
    deployment: Deployment,
    binding: str,
    partitions: tuple[str, ...],
    missing: bool,
    whole: bool,
    resume: str | None,
    dry_run: bool,
) -> Answer:
    """Run BINDING once, whether or not it is due, and commit what it makes. A binding that is triggered per partition
    runs for the partitions that are named, each in an execution of its own.

    If a task fails, nothing of the execution is visible and no cursor has moved; it can be resumed.

    \b
    JSON: {"execution", "binding", "partition", "state", "started_at", "finished_at", "seconds",
           "commit": ID, "consumed": {CHANNEL: {"cursor", "head"}}, "numbers": {CHANNEL: SEQ},
           "blocks": [{"channel", "range", "kind", "rows", "deletes", "bytes", "files", ...}],
           "tasks": [{"task", "seconds", "read": {INPUT: ROWS}, "wrote": {PORT: ROWS}, "skipped",
             "ways": {INPUT: {"way", "rows", "bytes", "seconds"}}}],
           "checks": [{"check", "channel", "passed", "blocking", "found", "metadata", "seconds", "skipped"}]}
    With --missing or several --partition: {"binding", "executions": [one for each]}; the first that fails ends the
    command, and those before it are committed. With --dry-run: as nova plan.
    """
    asked = _Asked(partitions, missing, whole)
    if resume is not None and (dry_run or not asked.is_one):
        raise click.UsageError("--resume goes on with one execution: it takes no --dry-run and no other partitions")
    if dry_run:
        return _plan(deployment, binding, asked, f"nova run {binding} --dry-run")
    deployment.require_project(f"nova run {binding}")
    with deployment.open() as store:
        if resume is not None:
            _check_binding(store, binding, resume)
        done = [_run(store, binding, p, whole, resume, deployment.quiet) for p in asked.of(store, binding)]
    if asked.is_one:
        return Answer(_execution_json(done[0]), lambda console: _show_execution(console, done[0]))
    data = {"binding": binding, "executions": [_execution_json(d) for d in done]}
    return Answer(data, lambda console: _show_executions(console, binding, done))


def _check_binding(store: Store, binding: str, execution_id: str) -> None:
    of = store.catalog.execution(execution_id).binding
    if of != binding:
        whose = "an insert" if of is None else f"binding {of!r}"
        raise click.UsageError(f"execution {execution_id} is one of {whose}, not of binding {binding!r}")


def _run(store: Store, binding: str, partition: str, whole: bool, resume: str | None, quiet: bool) -> Execution:
    tasks = [t.name for t in store.project.binding(binding).workflowette.in_order()]
    checked = bool(store.project.binding(binding).checks)
    label = f"{binding} {partition}".rstrip()
    begun: list[Execution] = []
    done: list[str] = []

    def observe(event: str, subject: Any) -> None:
        if event == "begin":
            begun.append(subject)
        elif event == "task":
            done.append(subject.task)
        elif event == "progress":
            progress(f"{label}: {subject}", quiet)
            return
        current = tasks.index(done[-1]) + 1 if done else 0
        if current < len(tasks):
            doing = f"{tasks[current]} ({current + 1} of {len(tasks)})"
        else:
            doing = "checking and committing" if checked else "committing"
        if event != "commit":
            progress(f"{label}: {doing}", quiet)

    try:
        return store.run(binding, partition, whole=whole, resume=resume, observer=observe)
    except NovaError as error:
        _offer_to_resume(store, error, begun)
        raise
    except KeyboardInterrupt:
        _say_interrupted(store, binding, begun)
        raise


def _offer_to_resume(store: Store, error: NovaError, begun: list[Execution]) -> None:
    """Say how to go on with an execution that failed and can be resumed (R4)."""
    if begun and _has_failed(store, begun[-1]):
        way = f"to go on with what it had read and staged: nova run {begun[-1].binding} --resume {begun[-1].id}"
        error.next = way if error.next is None else f"{error.next}\n            or, {way}"


def _say_interrupted(store: Store, binding: str, begun: list[Execution]) -> None:
    if begun and _has_failed(store, begun[-1]):
        click.echo(
            f"\nInterrupted; nothing was committed. To go on: nova run {binding} --resume {begun[-1].id}", err=True
        )


def _has_failed(store: Store, execution: Execution) -> bool:
    with contextlib.suppress(NovaError):
        return store.catalog.execution(execution.id).state == "failed"
    return False


# what is printed


def _show_plan(console: Console, planned: RunPlan, when: str, forced: Way | None) -> None:
    console.print(f"{planned.binding}, {when}")
    for n, step in enumerate(planned.steps, start=1):
        after = f", after {', '.join(step.after)}" if step.after else ""
        skip = "; left out if nothing is new" if step.skip_if_no_new else ""
        console.print()
        console.print(f"{n}. {step.task}{after}{skip}", style="bold")
        console.print(_step_table(step, not console.is_terminal, forced))
    for look in planned.checks:
        console.print()
        how = "" if look.blocking else ", not blocking"
        console.print(f"check {look.check} of {look.channel}{how}", style="bold")
        console.print(_reads_table(look.inputs, not console.is_terminal, forced))
    if planned.cursors or planned.heads:
        console.print()
        console.print(_commit_table(planned))


def _step_table(step: Step, whole: bool, forced: Way | None) -> Grid:
    shown = _reads_table(step.inputs, whole, forced)
    first = "writes"
    for output in step.outputs:
        name = output.port if output.channel in (None, output.port) else f"{output.port} = {output.channel}"
        how = "" if output.channel is not None else "private" + (", not written" if output.handover == "pass" else "")
        shown.add(first, name, output.kind, how, "", "", "", "", "")
        first = ""
    return shown


def _reads_table(inputs: Sequence[Input], whole: bool, forced: Way | None) -> Grid:
    columns = ("", "port", "mode", "blocks", "files", "rows", "bytes", "way", "CPU")
    shown = Grid(*columns, right=("files", "rows", "bytes", "CPU"), shorten=("blocks",))
    first = "reads"
    for given in inputs:
        for mode, read in given.reads.items():
            shown.add(
                first,
                _input_name(given),
                "matching" if given.mode == "matching" else mode,
                read_as(read, whole),
                *_sizes(read),
                *_way(given, read, forced),
            )
            first = ""
    return shown


def _input_name(given: Input) -> str:
    return given.port if given.channel in (None, given.port) else f"{given.port} = {given.channel}"


def _sizes(read: Read) -> tuple[str, str, str]:
    """Files, rows and bytes of what is there already; of a staged block nothing is known yet."""
    opened = () if isinstance(read, Port) else reads.sources(read)
    staged = any(isinstance(s, FromPort) for s in opened)
    if isinstance(read, Port) or (staged and len(opened) == 1):
        return "", "", ""
    known, more = reads.as_json(read), "+" if staged else ""
    return str(len(known["files"])) + more, number(known["rows"]) + more, size(known["bytes"]) + more


def _way(given: Input, read: Read, forced: Way | None) -> tuple[str, str]:
    """How it would be read, and what that costs; keys are looked up by how many there are."""
    found = best(ways(read), forced)
    if given.mode == "matching":
        return ("by key" if any(e.way == "cells" for e in ways(read)) else "frame"), ""
    return ("", "") if found is None else (found.way, f"{found.seconds:.1f} s")


def _commit_table(planned: RunPlan) -> Grid:
    shown = Grid("commit", "channel", "")
    first = "moves cursor"
    for c in planned.cursors:
        shown.add(first, c.channel, f"{c.expected} → {'its own number, if it takes one' if c.own else c.to}")
        first = ""
    first = "requires"
    for h in planned.heads:
        shown.add(first, h.channel, f"still at {h.seq}")
        first = ""
    return shown


def _show_executions(console: Console, binding: str, done: list[Execution]) -> None:
    """Executions of several partitions: one line each, in the order of their names."""
    if not done:
        console.print(f"{binding}: no partition has unread data")
        return
    columns = ("partition", "state", "time", "rows written", "numbers")
    shown = Grid(*columns, right=("time", "rows written"), shorten=("numbers",))
    for one in summarised(sorted(done, key=lambda d: d.partition)):
        if isinstance(one, str):
            shown.add(one)
            continue
        blocks = one.commit.blocks if one.commit else ()
        numbers = ", ".join(f"{c} {n}" for c, n in one.commit.numbers.items()) if one.commit else ""
        took = _duration(one)
        rows = number(sum(b.rows for b in blocks))
        shown.add(one.partition or "(whole)", one.state, "" if took is None else seconds(took), rows, numbers)
    console.print(shown)
    rows_in_all = sum(b.rows for d in done if d.commit for b in d.commit.blocks)
    console.print(f"{plural(len(done), 'partition')}, {plural(rows_in_all, 'row')} written")


def _execution_json(done: Execution) -> dict[str, Any]:
    commit = done.commit
    return {
        "execution": done.id,
        "binding": done.binding,
        "partition": done.partition,
        "state": done.state,
        "started_at": iso(done.started_at),
        "finished_at": iso(done.finished_at),
        "seconds": _duration(done),
        "commit": done.commit_id,
        "consumed": {c: {"cursor": cursor, "head": head} for c, (cursor, head) in commit.consumed.items()}
        if commit
        else {},
        "numbers": dict(commit.numbers) if commit else {},
        "blocks": [block_json(b) for b in commit.blocks] if commit else [],
        "tasks": [t.as_json() for t in done.tasks],
        "checks": [_check_json(c) for c in done.checks],
    }


def _check_json(check: CheckReport) -> dict[str, Any]:
    return {**asdict(check), "seconds": round(check.seconds, 3)}


def _duration(done: Execution) -> float | None:
    return None if done.finished_at is None else round((done.finished_at - done.started_at).total_seconds(), 3)


def _show_execution(console: Console, done: Execution) -> None:
    took = _duration(done)
    console.print(f"{done.binding} {done.state}" + ("" if took is None else f" in {seconds(took)}") + f"  ({done.id})")
    commit = done.commit
    consumed = commit.consumed.items() if commit else ()
    console.print(f"read  {'; '.join(_pin(c, *pin) for c, pin in consumed) or 'nothing'}")
    tasks = Grid("task", "time", "rows read", "rows written", right=("time",), shorten=("rows read", "rows written"))
    for t in done.tasks:
        if t.skipped:
            tasks.add(t.task, "", "nothing new", "left out")
        else:
            tasks.add(t.task, seconds(t.seconds), _counts(t.read), _counts(t.wrote))
    if done.tasks:
        console.print()
        console.print(tasks)
    checks = Grid("check", "of channel", "verdict", "found", shorten=("found",))
    for c in done.checks:
        checks.add(c.check, c.channel, "holds" if c.passed else "failed, not blocking", c.found or "")
    if done.checks:
        console.print()
        console.print(checks)
    console.print()
    if commit is None or not commit.blocks:
        console.print("No channel was changed: there was nothing to write.")
        return
    blocks = Grid("channel", "block", "rows", "deleted", "bytes", right=("rows", "deleted", "bytes"))
    for b in summarised(sorted(commit.blocks, key=lambda b: (b.channel, b.partition))):
        if isinstance(b, str):
            blocks.add(b)
            continue
        blocks.add(b.channel, name_of(b), number(b.rows), number(b.manifest.deletes), size(b.bytes))
    console.print(blocks)
    if len(commit.blocks) > 1:
        console.print(f"{plural(len(commit.blocks), 'block')}, {plural(sum(b.rows for b in commit.blocks), 'row')}")


def _pin(channel: str, cursor: int | None, head: int) -> str:
    if cursor is None:
        return f"{channel} at {head}"
    return f"{channel} from {cursor} to {head}" if cursor != head else f"{channel} at {head}, nothing new"


def _counts(rows: Any) -> str:
    return ", ".join(f"{name} {'handed on' if n is None else number(n)}" for name, n in rows.items())
