"""The options that every command takes: where the project, the catalog and the warehouse are."""

from __future__ import annotations

import click

DEPLOYMENT_OPTION_NAMES = ("project", "catalog", "warehouse")


def deployment_options() -> list[click.Parameter]:
    """``--project``, ``--catalog`` and ``--warehouse``: taken before a command's name and after it."""
    return [
        click.Option(["--project"], metavar="MODULE:NAME", help="The nova.Project, as package.module:attribute."),
        click.Option(["--catalog"], metavar="URL", help="SQLAlchemy URL of the catalog, or the path of a SQLite file."),
        click.Option(["--warehouse"], metavar="FOLDER", help="The folder that holds all blocks."),
    ]
