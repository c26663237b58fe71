"""``nova plan``: show what a run of a binding would read, do and write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.due_runs import plan_due
from nova_assets.cli.rendering import (
    TableGrid,
    format_count,
    print_table,
    print_title,
)
from nova_assets.execution.trigger_state import check_has_partitions
from nova_assets.model.read_strategy import ReadStrategy, forced_strategy
from nova_assets.plan.run_plan import RunPlan
from nova_assets.store.store import Store

if TYPE_CHECKING:
    from nova_assets.store.forecast import EarlierMaintenance, MaintenanceForecast


def add_partition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds the options ``--partition``, ``--missing`` and ``--whole`` to a command."""
    for option in (
        click.option("--whole", is_flag=True, help="Run all partitions in one execution, with one cursor for all."),
        click.option("--missing", is_flag=True, help="Run every partition that has unread data, one after the other."),
        click.option(
            "--partition",
            "partitions",
            metavar="COL=VALUE[/…]",
            multiple=True,
            help="Partition to run; may be given several times.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class PartitionOptions:
    """Values of the options that select partitions."""

    partitions: tuple[str, ...]
    missing: bool
    whole: bool

    def __post_init__(self) -> None:
        if self.missing + self.whole + bool(self.partitions) > 1:
            raise click.UsageError("--partition, --missing and --whole exclude each other")

    @property
    def is_single_execution(self) -> bool:
        """Whether the options select exactly one execution, so that the JSON result is its object and not a list."""
        return not self.missing and len(self.partitions) <= 1

    def resolve_partitions(self, store: Store, binding: str) -> list[str]:
        """Names of the selected partitions, without duplicates; ``""``, the whole, if none is selected."""
        if self.missing:
            check_has_partitions(store.project.binding(binding))
            return store.unread(binding)
        bound = store.project.binding(binding)
        return list(dict.fromkeys(bound.partition(p) for p in self.partitions or ("",)))


@click.command(cls=NovaCommand)
@click.argument("binding", required=False)
@add_partition_options
@click.option(
    "--why", is_flag=True, help="List how earlier executions brought a maintained result up to date, and why."
)
@click.option("--advise", is_flag=True, help="List layouts of the inputs by which maintained queries would cost less.")
@click.option("--due", is_flag=True, help="Show what nova run --due would run now, and what it would compute once.")
@click.option(
    "--select",
    metavar="BINDING[+]",
    multiple=True,
    help="With --due: only this binding; with +, the bindings that follow it, too. Several times.",
)
def plan(
    deployment: Deployment,
    binding: str | None,
    partitions: tuple[str, ...],
    missing: bool,
    whole: bool,
    why: bool,
    advise: bool,
    due: bool,
    select: tuple[str, ...],
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
    With --missing or several --partition: {"binding", "plans": [one per partition]}. With --due:
    {"due": [{"binding", "partition", "why"}], "waits": [{"binding", "partition", "why"}], "shared": [{"rows_of",
    "executions": [NAME], "shared": BOOL, "runs_python": BOOL or null, "rows", "bytes",
    "estimated_cpu_seconds": {"shared", "separate"}}]}.
    """
    if due:
        if binding is not None or partitions or missing or whole or why or advise:
            raise click.UsageError("--due takes no BINDING, and of the options --select only")
        return plan_due(deployment, select, "nova plan --due")
    if binding is None or select:
        raise click.UsageError("name a BINDING, or plan what is due: nova plan --due [--select BINDING]")
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
        trigger = store.project.binding(binding).when
    forced = forced_strategy(deployment.settings.strategy)
    when = "run by hand" if trigger is None else f"when {trigger}"

    def show(console: Console) -> None:
        for n, (run_plan, forecasts_of_plan) in enumerate(zip(run_plans, forecasts, strict=True)):
            if n:
                console.print()
            _show_plan(console, run_plan, when, forced)
            for forecast in forecasts_of_plan:
                _show_forecast(console, forecast, why)
                if advise:
                    _show_layout_advice(console, forecast)
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
    for table in run_plan.tables(show_all_blocks=not console.is_terminal, forced_strategy=forced_strategy):
        console.print()
        if table.caption:
            console.print(table.caption, style="bold")
        console.print(TableGrid.of(table))


def _show_forecast(console: Console, forecast: MaintenanceForecast, why: bool) -> None:
    console.print()
    console.print(f"{forecast.task} maintains {forecast.channel}: {forecast.choice.strategy}", style="bold")
    console.print(forecast.choice.reason, soft_wrap=True)
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


def _show_layout_advice(console: Console, forecast: MaintenanceForecast) -> None:
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
