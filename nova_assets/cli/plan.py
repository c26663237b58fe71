"""``nova plan``: show what a run of a binding would read, do and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.partition_options import PartitionOptions, add_partition_options
from nova_assets.cli.rendering import (
    TableGrid,
    format_bytes,
    format_count,
    format_read,
    print_table,
    print_title,
)
from nova_assets.model import reads
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import PrivatePortRead, Read, StagedBlockPlaceholder
from nova_assets.plan.read_strategy import best_estimate, estimate_strategies
from nova_assets.plan.run_plan import Input, RunPlan, Step

if TYPE_CHECKING:
    from nova_assets.operations.forecast import EarlierMaintenance, MaintenanceForecast


@click.command(cls=NovaCommand)
@click.argument("binding")
@add_partition_options
@click.option(
    "--why", is_flag=True, help="List how earlier executions brought a maintained result up to date, and why."
)
@click.option("--advise", is_flag=True, help="List layouts of the inputs by which maintained queries would cost less.")
@click.pass_obj
def plan(
    deployment: Deployment,
    binding: str,
    partitions: tuple[str, ...],
    missing: bool,
    whole: bool,
    why: bool,
    advise: bool,
) -> CommandResult:
    """Show what a run of BINDING would do now: its tasks in order with their inputs and outputs, and the cursors and
    heads of the commit. Nothing is opened, pinned or changed. Errors that a run would report before its first task are
    reported here, too.

    For a task that maintains the result of a query, the plan shows the steps through which changes pass, and the
    strategy that the run would choose, as far as the catalog tells.

    \b
    JSON: {"binding", "partition", "pins": {CHANNEL: {"head", "cursor"}},
           "steps": [{"task", "after", "reads": [{"input", "channel", "mode", "by": {MODE:
             {"read", "as", "blocks", "files", "rows", "bytes", "ways": [{"way", "rows", "bytes",
             "seconds"}]}}}], "writes": [{"port",
             "channel", "kind", "handover"}]}],
           "cursors": [{"channel", "from", "to"}], "requires": [{"channel", "head"}],
           "maintenance": [{"task", "channel", "strategy", "reason", "estimated_cpu_seconds": {STRATEGY: SECONDS},
             "steps": [{"depth", "step", "rule"}], "earlier": [{"number", "at", "seconds",
             "cpu_seconds" or null, "strategy", "reason", "estimated_cpu_seconds"}],
             "advice": [{"dataset", "channel", "cluster_by", "reason", "rows"}]}]}
    With --missing or several --partition: {"binding", "plans": [one per partition]}.
    """
    options = PartitionOptions(partitions, missing, whole)
    return plan_result(deployment, binding, options, f"nova plan {binding}", why=why, advise=advise)


def plan_result(
    deployment: Deployment,
    binding: str,
    partition_options: PartitionOptions,
    command: str,
    *,
    why: bool = False,
    advise: bool = False,
) -> CommandResult:
    """Result of ``nova plan``.

    Args:
        command: the command that the user typed, for errors.
        why: whether earlier executions of maintained queries are listed.
        advise: whether better layouts of the inputs of maintained queries are listed.
    """
    deployment.check_project_configured(command)
    with deployment.open_read_only(with_project=True) as store:
        run_plans = [
            store.plan(binding, p, whole=partition_options.whole)
            for p in partition_options.resolve_partitions(store, binding)
        ]
        forecasts = [store.forecast(run_plan) for run_plan in run_plans]
        trigger, forced = store.project.binding(binding).when, store.engine.forced_strategy
    when = "run by hand" if trigger is None else f"when {trigger}"

    def show(console: Console) -> None:
        for n, (run_plan, forecasts_of_plan) in enumerate(zip(run_plans, forecasts, strict=True)):
            if n:
                console.print()
            _show_plan(console, run_plan, when, forced)
            for forecast in forecasts_of_plan:
                _show_forecast(console, forecast, why)
                if advise:
                    _show_advice(console, forecast)
        if not run_plans:
            console.print(f"{binding}: no partition has unread data")

    plans_json = [
        {**run_plan.as_json(), "maintenance": [f.as_json() for f in forecasts_of_plan]}
        for run_plan, forecasts_of_plan in zip(run_plans, forecasts, strict=True)
    ]
    return CommandResult(
        plans_json[0] if partition_options.is_single_execution else {"binding": binding, "plans": plans_json}, show
    )


def _show_plan(console: Console, run_plan: RunPlan, trigger_text: str, forced_strategy: ReadStrategy | None) -> None:
    console.print(f"{run_plan.binding}, {trigger_text}")
    for n, step in enumerate(run_plan.steps, start=1):
        after = f", after {', '.join(step.after)}" if step.after else ""
        skip = "; skipped without new data" if step.skip_if_no_new else ""
        console.print()
        console.print(f"{n}. {step.task}{after}{skip}", style="bold")
        console.print(_step_table(step, not console.is_terminal, forced_strategy))
    for check_plan in run_plan.checks:
        console.print()
        blocking_text = "" if check_plan.blocking else ", not blocking"
        console.print(f"check {check_plan.check} of {check_plan.channel}{blocking_text}", style="bold")
        console.print(_reads_table(check_plan.inputs, not console.is_terminal, forced_strategy))
    if run_plan.cursors or run_plan.heads:
        console.print()
        console.print(_cursors_and_heads_table(run_plan))


def _step_table(step: Step, show_all_blocks: bool, forced_strategy: ReadStrategy | None) -> TableGrid:
    grid = _reads_table(step.inputs, show_all_blocks, forced_strategy)
    first = "writes"
    for output in step.outputs:
        name = output.port if output.channel in (None, output.port) else f"{output.port} = {output.channel}"
        handover_text = (
            "" if output.channel is not None else "private" + (", not written" if output.handover == "pass" else "")
        )
        grid.add(first, name, output.kind, handover_text, "", "", "", "", "")
        first = ""
    return grid


def _reads_table(inputs: Sequence[Input], show_all_blocks: bool, forced_strategy: ReadStrategy | None) -> TableGrid:
    columns = ("", "port", "mode", "blocks", "files", "rows", "bytes", "way", "CPU")
    grid = TableGrid(*columns, right_aligned=("files", "rows", "bytes", "CPU"), shorten=("blocks",))
    first = "reads"
    for task_input in inputs:
        for mode, read in task_input.reads.items():
            grid.add(
                first,
                _format_port_and_channel(task_input),
                "matching" if task_input.mode == "matching" else mode,
                format_read(read, show_all_blocks),
                *_file_row_and_byte_cells(read),
                *_format_strategy_and_cost(task_input, read, forced_strategy),
            )
            first = ""
    return grid


def _format_port_and_channel(task_input: Input) -> str:
    return (
        task_input.port
        if task_input.channel in (None, task_input.port)
        else f"{task_input.port} = {task_input.channel}"
    )


def _file_row_and_byte_cells(read: Read) -> tuple[str, str, str]:
    """Files, rows and bytes of the committed blocks of a read. A block to be staged has no totals yet."""
    read_sources = () if isinstance(read, PrivatePortRead) else reads.source_blocks(read)
    staged = any(isinstance(s, StagedBlockPlaceholder) for s in read_sources)
    if isinstance(read, PrivatePortRead) or (staged and len(read_sources) == 1):
        return "", "", ""
    read_totals, incomplete_mark = reads.read_as_json(read), "+" if staged else ""
    return (
        str(len(read_totals["files"])) + incomplete_mark,
        format_count(read_totals["rows"]) + incomplete_mark,
        format_bytes(read_totals["bytes"]) + incomplete_mark,
    )


def _format_strategy_and_cost(task_input: Input, read: Read, forced_strategy: ReadStrategy | None) -> tuple[str, str]:
    """Read strategy and its cost. A ``matching`` input has no cost, because it depends on the number of keys."""
    best_strategy = best_estimate(estimate_strategies(read), forced_strategy)
    if task_input.mode == "matching":
        return ("by key" if any(e.strategy == "buckets" for e in estimate_strategies(read)) else "spark"), ""
    return ("", "") if best_strategy is None else (best_strategy.strategy, f"{best_strategy.seconds:.1f} s")


def _show_forecast(console: Console, forecast: MaintenanceForecast, why: bool) -> None:
    console.print()
    console.print(f"{forecast.task} maintains {forecast.channel}: {forecast.choice.strategy}", style="bold")
    console.print(forecast.choice.reason, markup=False, soft_wrap=True)
    if forecast.steps:
        rows = [("  " * depth + step, rule) for depth, step, rule in forecast.steps]
        print_table(console, ("step", "how a change passes through"), rows)
    if why:
        print_title(console, "Earlier executions")
        earlier = [
            (str(e.number or ""), e.strategy, f"{e.seconds:.1f} s", _format_cpu(e), _format_estimates(e), e.reason)
            for e in forecast.earlier
        ]
        print_table(console, ("number", "strategy", "took", "CPU", "estimated CPU", "reason"), earlier)


def _show_advice(console: Console, forecast: MaintenanceForecast) -> None:
    print_title(console, "Better layouts")
    if not forecast.advice:
        console.print("no layout of an input is known by which this execution would cost less")
        return
    rows = [(a.channel, format_count(a.rows), f"cluster_by={a.cluster_by!r}", a.reason) for a in forecast.advice]
    print_table(console, ("channel", "rows", "layout", "why"), rows)


def _format_cpu(earlier: EarlierMaintenance) -> str:
    return "" if earlier.cpu_seconds is None else f"{earlier.cpu_seconds:.1f} s"


def _format_estimates(earlier: EarlierMaintenance) -> str:
    return ", ".join(f"{strategy} {seconds:.1f} s" for strategy, seconds in earlier.estimated_cpu_seconds.items())


def _cursors_and_heads_table(run_plan: RunPlan) -> TableGrid:
    grid = TableGrid("commit", "channel", "")
    first = "moves cursor"
    for c in run_plan.cursors:
        grid.add(
            first, c.channel, f"{c.expected} → {'its own number, if it takes one' if c.follows_own_write else c.to}"
        )
        first = ""
    first = "requires"
    for h in run_plan.heads:
        grid.add(first, h.channel, f"still at {h.seq}")
        first = ""
    return grid
