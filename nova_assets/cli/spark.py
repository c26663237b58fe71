"""``nova spark``: start, stop or inspect the deployment's Spark Connect server, which stays warm between commands."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console

from nova_assets.cli.command import CommandResult, NovaCommand
from nova_assets.cli.deployment import Deployment
from nova_assets.cli.rendering import format_duration, print_progress


@click.command(cls=NovaCommand, checks_project=False)
@click.argument("action", type=click.Choice(["status", "start", "stop"]), default="status")
def spark(deployment: Deployment, action: str) -> CommandResult:
    """Start, stop or inspect the Spark Connect server of this deployment.

    With `spark = "server"` in [tool.nova] (or NOVA_SPARK=server), commands and Dagster's steps share this warm server
    instead of starting Spark themselves. The first command or step that needs the server starts it. It listens on this
    machine only, and runs until it is stopped.

    \b
    JSON: {"running", "address", "pid", "version", "logs", "used": whether the setting spark selects it}
    """
    from nova_assets.engine.session import connect_server

    home = deployment.settings.default_data_folder
    message = ""
    if action == "start":
        print_progress("starting a Spark Connect server", deployment.quiet)
        started_at = time.monotonic()
        _start_server(deployment)
        message = f"ready in {format_duration(time.monotonic() - started_at)}"
    elif action == "stop":
        message = "stopped" if connect_server.stop_server(home) else "no server was running"
    server = connect_server.find_recorded_server(home)
    is_configured = deployment.settings.spark == "server"
    data: dict[str, Any] = {"running": False, "address": None, "pid": None, "version": None, "logs": None}
    if server is not None and server.is_alive:
        data = {
            "running": True,
            "address": server.address,
            "pid": server.pid,
            "version": server.version,
            "logs": str(server.log_folder),
        }
    return CommandResult(
        {**data, "used": is_configured}, lambda console: _show_server_status(console, data, message, is_configured)
    )


def _start_server(deployment: Deployment) -> None:
    from nova_assets.engine.session.spark_session import get_or_build_session

    get_or_build_session("server", deployment.settings.default_data_folder, deployment.settings.spark_config).stop()


def _show_server_status(console: Console, server_status: dict[str, Any], message: str, is_configured: bool) -> None:
    if message:
        console.print(message)
    if not server_status["running"]:
        console.print("No Spark Connect server of this deployment is running.")
    else:
        console.print(
            f"Spark {server_status['version']} at {server_status['address']}, process "
            f"{server_status['pid']}; logs in {server_status['logs']}"
        )
    if server_status["running"] and not is_configured:
        console.print('The deployment does not use it. Set spark = "server" in [tool.nova], or NOVA_SPARK=server')
