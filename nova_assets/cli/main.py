"""Entry point of the ``nova`` command (DESIGN §8). A command's module is imported only when the command is called."""

from __future__ import annotations

import gc
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from nova_assets import renamed
from nova_assets.cli.deployment_options import deployment_options
from nova_assets.suggestions import did_you_mean
from nova_assets.version import __version__

GROUPS = {
    "Pipelines": {
        "init": ("init", "Create catalog and warehouse, or lay out a new project."),
        "bindings": ("bindings", "List the bindings: trigger, cursors, last execution, due."),
        "plan": ("plan", "Show what a run of a binding would read, compute and write."),
        "run": ("run", "Run a binding once and commit its outputs."),
        "switch": ("switch", "Switch a binding between per-partition and whole runs."),
        "cursors": ("cursors", "Show how far each binding has read its channels."),
        "executions": ("executions", "List the executions that have not ended, with their holders."),
        "check-failures": ("check_failures", "Show the rows that violate the data checks of a channel."),
        "release": ("executions", "End an execution whose process has died."),
    },
    "Data": {
        "channels": ("channels", "List the channels: merge model, head, rows, bytes, schema."),
        "timeline": ("timeline", "Draw a channel's timeline and list its instants, oldest first."),
        "provenance": ("provenance", "List what a version was computed from, or what used it."),
        "insert": ("insert", "Insert files into a channel, as one block."),
        "read": ("read", "Read rows of a channel: a snapshot, or changes after a number."),
        "receive": ("receive", "Ingest the files that have arrived for a channel."),
        "arrivals": ("arrivals", "List the files that have arrived for a channel."),
        "replay": ("replay", "Ingest quarantined records again, unchanged or repaired."),
        "seal": ("seal", "Seal the days or hours of a channel that are complete."),
        "seals": ("seal", "List the sealed days or hours of a channel."),
        "publish": ("publish", "Publish the head of a channel in its tables for other tools."),
        "published": ("publish", "List the published versions of a channel."),
        "unpublish": ("publish", "Stop publishing a channel."),
        "external": ("external", "Write and check the definitions of external tables."),
        "refresh": ("refresh", "Commit changes that other systems made to external tables."),
        "drop": ("drop", "Drop partitions of a channel."),
        "restore": ("restore", "Restore an earlier version of a channel."),
    },
    "Datasets in SQL": {
        "show": ("show", "Show a dataset in SQL: scopes, partitions, schema and query."),
        "tick": ("tick", "Compute missing, dirty and stale partitions of datasets in SQL."),
        "backfill": ("backfill", "Compute partitions again, with all that was computed from them."),
        "backfills": ("backfill", "List the backfills and their progress."),
        "check": ("check", "Find breaking changes of datasets in SQL before anything runs."),
        "test": ("test", "Run the test cases of datasets in SQL."),
    },
    "Definitions": {
        "workflowettes": ("definitions", "List the workflowettes: tasks, ports, bindings."),
        "triggers": ("definitions", "List the triggers: last firing, paused or removed."),
        "describe": ("definitions", "Describe a definition: connections, versions, executions."),
        "pause": ("definitions", "Pause a channel, workflowette, binding or trigger."),
        "resume": ("definitions", "Resume what was paused."),
        "remove": ("remove", "Remove a channel, workflowette, binding or trigger."),
    },
    "Maintenance": {
        "compact": ("compact", "Merge a channel's deltas, so that readers merge less."),
        "gc": ("gc", "Remove blocks that no retained answer needs."),
        "notify": ("notify", "Deliver notifications of failures, lags and other events."),
        "backup": ("backup", "Copy the catalog, and hold the files that belong to the copy."),
        "doctor": ("doctor", "Check Spark, catalog, warehouse and project, and repair damage."),
    },
    "Service and shell": {
        "spark": ("spark", "Start, stop or inspect a warm Spark server."),
        "serve": ("serve", "Serve channels over HTTP."),
        "token": ("token", "Add, list and revoke the tokens of the service."),
        "completion": ("completion", "Print the script by which a shell completes the arguments."),
    },
}
"""Title -> command -> its module in this package and its help line, in the order of their typical use."""

_ALLOCATIONS_BETWEEN_COLLECTIONS = 150_000
"""More objects than a short command creates. Nearly all of them belong to modules and live until the command ends."""

COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}


class LazyCommandGroup(click.Group):
    """Command group that imports a command's module when the command is called."""

    def main(self, args: Sequence[str] | None = None, *extra_args: Any, **extra_options: Any) -> Any:
        """Run a command. With ``--json``, a usage error is a JSON object on standard error, as any other error."""
        arguments = list(sys.argv[1:] if args is None else args)
        if "--json" not in arguments:
            return super().main(arguments, *extra_args, **extra_options)
        try:
            code = super().main(arguments, *extra_args, **{**extra_options, "standalone_mode": False})
        except click.ClickException as error:
            error_fields = {"code": "NOVA-USAGE", "what": error.format_message()}
            if isinstance(error, click.UsageError) and error.ctx is not None:
                error_fields["next"] = f"{error.ctx.command_path} --help"
            click.echo(json.dumps(error_fields), err=True)
            code = error.exit_code
        except click.Abort:
            click.echo(json.dumps({"code": "NOVA-INTERRUPTED", "what": "interrupted"}), err=True)
            code = 1
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the named command.

        Raises:
            UsageError: no command has this name. The error suggests a similar name.
        """
        if args and args[0] in renamed.NEW_COMMAND_NAMES:
            raise click.UsageError(f"nova {args[0]} is now called nova {renamed.NEW_COMMAND_NAMES[args[0]]}", ctx)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command is called {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"nova_assets.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin with a text. ``GROUPS`` has the help lines, so no command is imported."""
        names = (name for name in COMMANDS if name.startswith(incomplete))
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name][1]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


@click.group(
    cls=LazyCommandGroup,
    params=deployment_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="nova %(version)s")
def cli(**deployment: str | None) -> None:
    """Incremental pipelines on Spark: run bindings, insert data, inspect channels.

    The options below locate the deployment. Without them, NOVA_PROJECT, NOVA_CATALOG and NOVA_WAREHOUSE apply, then
    [tool.nova] in pyproject.toml. By default, catalog and warehouse are in .nova/ below this folder.

    Every command takes --json. Exit codes: 0 done, 1 failed, 2 wrong use. NOVA_DEBUG=1 shows tracebacks.
    """


def main() -> None:
    """Run the ``nova`` command."""
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)  # by default, collections take a tenth of a short command
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Δ must not fail
    cli(prog_name="nova")
