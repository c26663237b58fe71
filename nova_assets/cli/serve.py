"""``nova serve``: serve channels to tasks and other systems over HTTP."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import Deployment
from nova_assets.errors import SettingsError


@click.command(cls=NovaCommand)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8765, show_default=True, help="0 for any that is free.")
@click.option(
    "--auth",
    type=click.Choice(["auto", "tokens", "none"]),
    default="auto",
    show_default=True,
    help="Whether each request needs a token (nova token add); auto: unless this machine alone can ask.",
)
@click.option("--tls-cert", metavar="FILE", help="The certificate, as PEM.")
@click.option("--tls-key", metavar="FILE", help="Its key, as PEM.")
@click.option("--proxy", "proxies", multiple=True, metavar="ADDRESS", help="Where a proxy asks from that ends TLS.")
@click.option("--public-name", "public_names", multiple=True, metavar="NAME", help="Another name it is called by.")
@click.option("--max-body", default=64, show_default=True, metavar="MIB", help="How large a body may be.")
@click.option("--max-requests", default=64, show_default=True, help="So many are at work at once.")
@click.option(
    "--max-connections-per-address", default=200, show_default=True, help="So many connections from one address."
)
@click.option("--request-seconds", default=30.0, show_default=True, help="Until an answer begins.")
@click.option("--shutdown-grace", default=10.0, show_default=True, metavar="SECONDS", help="For what is at work then.")
@click.option("--views", type=click.Choice(["disk", "memory"]), help="What views are kept in.  [default: disk]")
@click.option("--views-folder", metavar="FOLDER", help="Where they are kept.  [default: .nova/views]")
@click.pass_obj
def serve(
    deployment: Deployment,
    /,
    max_body: int,
    views: str | None,
    views_folder: str | None,
    proxies: tuple[str, ...],
    public_names: tuple[str, ...],
    **options: Any,
) -> CommandResult:
    """Serve channels over HTTP, under /v1: their files from views that follow their timelines, their rows as Arrow
    streams, inserts, and how things stand. /v1/openapi.json describes it all.

    As it stands, only this machine can ask, and may do everything. To listen elsewhere takes tokens, and TLS or a proxy
    that is named. SIGTERM and Ctrl-C stop it: what is at work is finished first.

    JSON: {"url": where it listened}
    """
    try:
        from nova_assets.file_views.open_storage import open_storage
        from nova_assets.service import serving
        from nova_assets.service.http.config import ServiceConfig
        from nova_assets.service.http.exposure import is_any_address
        from nova_assets.service.http.metrics import log_as_json
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"what a service needs is not installed: {error.name}", next="pip install 'nova-assets[service]'"
        ) from error
    config = ServiceConfig(max_body=max_body * 2**20, proxies=proxies, public_names=public_names, **options)
    configured = deployment.settings
    settings = replace(
        configured,
        service="embedded",
        views=views or configured.views,
        views_folder=views_folder or configured.views_folder,
    )
    open_view_storage = partial(
        open_storage, settings.views, Path(settings.views_folder), int(settings.views_memory * 2**20)
    )
    with deployment.open_with_view_storage(settings, open_view_storage) as store:
        server = serving.server_of_service(serving.service_of_store(store, config))
        url = server.listen()
        log_as_json()
        print_to_stderr(
            f"listening on {url}" + (" and every other address of this machine" if is_any_address(config.host) else "")
        )
        server.run()
    return CommandResult({"url": url}, lambda console: console.print("stopped"))
