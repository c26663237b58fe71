"""Entry point of the ``nova`` command (DESIGN §8). A command's module is imported only when the command is called."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from nova_assets import renamed
from nova_assets.cli.options import deployment_options
from nova_assets.suggestions import did_you_mean
from nova_assets.version import __version__

COMMANDS = {
    "init": ("init", "Make the catalog and register the project's channels."),
    "channels": ("channels", "Every channel: merge model, head, rows, bytes, schema."),
    "bindings": ("bindings", "Every binding: trigger, cursors, last execution, what is due."),
    "timeline": ("channels", "What happened to a channel, oldest first."),
    "plan": ("plan", "What running a binding would read, do and write."),
    "run": ("run", "Run a binding and commit what it makes."),
    "switch": ("switch", "Run a binding per partition from now on, or whole."),
    "insert": ("insert", "Put files onto a channel, as one block."),
    "receive": ("receive", "Take the files that have arrived for a channel."),
    "arrivals": ("receive", "Files that have arrived, and what became of each."),
    "replay": ("receive", "Try again what was set aside, as it is or mended."),
    "seal": ("seal", "Seal the days or hours of a channel that are complete."),
    "seals": ("seal", "Which days or hours are known to be complete."),
    "publish": ("publish", "Show a channel as it is now in the tables that others read."),
    "published": ("publish", "What these tables show, and have shown."),
    "unpublish": ("publish", "Show a channel there no more."),
    "read": ("read", "Rows of a channel: a snapshot, or the changes since one."),
    "refresh": ("refresh", "Look what others have written of external channels."),
    "show": ("datasets", "What a dataset in SQL is: scopes, partitions, schema and query."),
    "tick": ("datasets", "Make what datasets in SQL lack: what is missing, marked or stale."),
    "backfill": ("backfill", "Have partitions made again, and what was made of them."),
    "backfills": ("backfill", "Who wanted what made again, and how far that is."),
    "check": ("check", "What a change of datasets in SQL breaks, before anything runs."),
    "cursors": ("channels", "How far each binding has read."),
    "executions": ("executions", "Executions that have not ended, and who holds each."),
    "release": ("executions", "End an execution whose process is gone."),
    "compact": ("maintenance", "Merge a channel's deltas, so that readers need not."),
    "gc": ("maintenance", "Take the blocks that nobody needs any more."),
    "drop": ("maintenance", "Drop partitions of a channel."),
    "restore": ("maintenance", "Make a channel what it was at a number."),
    "spark": ("spark", "Start, stop or look at a Spark server that is kept warm."),
    "serve": ("serve", "Serve channels to tasks and other systems, over HTTP."),
    "token": ("token", "Who may do what through the service: add, list and revoke tokens."),
    "doctor": ("doctor", "Which Java, Spark, catalog and warehouse are used; what is wrong."),
}
"""Module in this package and help line of each command, in the order of their typical use."""


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
        if args and args[0] in renamed.COMMANDS:
            raise click.UsageError(f"nova {args[0]} is called nova {renamed.COMMANDS[args[0]]} now", ctx)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command is called {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"nova_assets.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyCommandGroup,
    params=deployment_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="nova %(version)s")
def cli(**deployment: str | None) -> None:
    """Incremental pipelines on Spark: run bindings, put data in, look at what is there.

    Where everything is comes from the options below, then NOVA_PROJECT, NOVA_CATALOG and NOVA_WAREHOUSE, then
    [tool.nova] in pyproject.toml; without any, catalog and warehouse are under .nova/ in this folder.

    Every command takes --json. Exit codes: 0 done, 1 failed, 2 wrong use. NOVA_DEBUG=1 shows tracebacks.
    """


def main() -> None:
    """Run the ``nova`` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Δ must not fail
    cli(prog_name="nova")
