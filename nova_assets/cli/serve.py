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
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8765, show_default=True, help="Port to listen on; 0 for any free port.")
@click.option(
    "--auth",
    type=click.Choice(["auto", "tokens", "none"]),
    default="auto",
    show_default=True,
    help="Whether requests need a token (nova token add). auto: only if other machines can reach the service.",
)
@click.option("--tls-cert", metavar="FILE", help="Certificate, in PEM format.")
@click.option("--tls-key", metavar="FILE", help="Key of the certificate, in PEM format.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of the reverse proxy that terminates TLS.",
)
@click.option("--public-name", "public_names", multiple=True, metavar="NAME", help="Further host name of the service.")
@click.option("--max-body", default=64, show_default=True, metavar="MIB", help="Maximum size of a request body.")
@click.option("--max-requests", default=64, show_default=True, help="Maximum number of concurrent requests.")
@click.option(
    "--max-connections-per-address",
    default=200,
    show_default=True,
    help="Maximum number of connections from one address.",
)
@click.option("--request-seconds", default=30.0, show_default=True, help="Time limit until a response begins.")
@click.option(
    "--shutdown-grace",
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for requests in progress at shutdown.",
)
@click.option("--views", type=click.Choice(["disk", "memory"]), help="Storage of file views.  [default: disk]")
@click.option("--views-folder", metavar="FOLDER", help="Folder of file views.  [default: .nova/views]")
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
    """Serve channels over HTTP, under /v1: file lists from file views, rows as Arrow streams, inserts, maintenance and
    status. /v1/openapi.json describes all routes.

    By default, only this machine can reach the service, and every caller has all rights. To listen on other addresses,
    the service needs tokens, and TLS or a named proxy. SIGTERM and Ctrl-C stop it after the requests in progress.

    JSON: {"url": address of the service}
    """
    try:
        from nova_assets.file_views.open_storage import open_storage
        from nova_assets.service import assembly
        from nova_assets.service.http.access_log import configure_json_logging
        from nova_assets.service.http.config import ServiceConfig
        from nova_assets.service.http.exposure import is_any_address
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"a package that the service needs is not installed: {error.name}",
            next="pip install 'nova-assets[service]'",
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
        server = assembly.build_server(assembly.build_service(store, config))
        url = server.listen()
        configure_json_logging()
        print_to_stderr(
            f"listening on {url}" + (" and all other addresses of this machine" if is_any_address(config.host) else "")
        )
        server.run()
    return CommandResult({"url": url}, lambda console: console.print("stopped"))
