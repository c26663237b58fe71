"""``nova spark``: the Spark Connect server of this deployment, kept warm between commands."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import Answer, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import progress, seconds


@click.command(cls=NovaCommand, checks_project=False)
@click.argument("action", type=click.Choice(["status", "start", "stop"]), default="status")
@click.pass_obj
def spark(deployment: Deployment, action: str) -> Answer:
    """Start, stop or look at the Spark Connect server of this deployment.

    It is what `spark = "server"` in [tool.nova] (or NOVA_SPARK=server) uses: commands and Dagster's steps then share
    one warm Spark instead of starting their own. It is also started by the first of them that needs it, listens on this
    machine alone, and runs until it is stopped.

    \b
    JSON: {"running", "address", "pid", "version", "logs", "used": whether the setting names it}
    """
    from nova_assets.engine.session import connect_server

    home = deployment.settings.home
    says = ""
    if action == "start":
        progress("starting a Spark Connect server", deployment.quiet)
        began = time.monotonic()
        _start(deployment)
        says = f"ready in {seconds(time.monotonic() - began)}"
    elif action == "stop":
        says = "stopped" if connect_server.stop(home) else "there was none to stop"
    found = connect_server.recorded(home)
    used = deployment.settings.spark == "server"
    data: dict[str, Any] = {"running": False, "address": None, "pid": None, "version": None, "logs": None}
    if found is not None and found.alive:
        data = {
            "running": True,
            "address": found.address,
            "pid": found.pid,
            "version": found.version,
            "logs": str(found.logs),
        }
    return Answer({**data, "used": used}, lambda console: _show(console, data, says, used))


def _start(deployment: Deployment) -> None:
    from nova_assets.engine.session.session import build

    build("server", deployment.settings.home, deployment.settings.spark_config).stop()


def _show(console: Console, data: dict[str, Any], says: str, used: bool) -> None:
    if says:
        console.print(says)
    if not data["running"]:
        console.print("No Spark Connect server of this deployment is running.")
    else:
        console.print(f"Spark {data['version']} at {data['address']}, process {data['pid']}; logs in {data['logs']}")
    if data["running"] and not used:
        console.print('It is not used: set spark = "server" in [tool.nova] of pyproject.toml, or NOVA_SPARK=server')
