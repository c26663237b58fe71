"""Options of every command that locate the project, the catalog and the warehouse."""

from __future__ import annotations

import click

DEPLOYMENT_OPTION_NAMES = ("project", "catalog", "warehouse")


def deployment_options() -> list[click.Parameter]:
    """Options ``--project``, ``--catalog`` and ``--warehouse``, accepted before and after a command's name."""
    return [
        click.Option(
            ["--project"],
            metavar="MODULE:NAME",
            help="The nova.Project of the deployment, as package.module:attribute.",
        ),
        click.Option(["--catalog"], metavar="URL", help="The catalog: a SQLAlchemy URL, or the path of a SQLite file."),
        click.Option(["--warehouse"], metavar="FOLDER", help="The folder or s3://BUCKET/PREFIX that holds all blocks."),
    ]


def option_of_command_line(ctx: click.Context | None, option_name: str) -> str | None:
    """Value of a deployment option of a command, or of a group before its name."""
    while ctx is not None:
        if ctx.params.get(option_name):
            return str(ctx.params[option_name])
        ctx = ctx.parent
    return None
