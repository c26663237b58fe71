"""``nova serve``: serve channels to tasks and other systems over HTTP."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_assets.cli.command import CommandResult, NovaCommand, print_to_stderr
from nova_assets.cli.deployment import CatalogCreation, Deployment, check_catalog_exists, is_default_catalog
from nova_assets.renamed import NEW_SETTING_VALUES
from nova_assets.settings import VIEW_STORAGES, Settings
from nova_assets.wiring.channel_views import require_service_extra

if TYPE_CHECKING:
    from nova_assets.service.http.config import ServiceConfig
    from nova_assets.service.http.server import Server


class _ViewStorageChoice(click.Choice[str]):
    """A storage of views. The name of a former storage answers with the present one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if new_value := NEW_SETTING_VALUES["views"].get(value):
            self.fail(f"{value!r} is now called {new_value!r}.", param, ctx)
        return super().convert(value, param, ctx)


def _point_to_proxy(ctx: click.Context, option: click.Parameter, value: object) -> None:
    """Refuse an option of earlier versions that a reverse proxy has replaced."""
    if value is not None:
        raise click.UsageError(
            f"nova serve has no option {option.opts[0]}: a reverse proxy limits the connections of one address "
            "(nginx: limit_conn; see docs/guides/service.md, Behind a reverse proxy)",
            ctx,
        )


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
@click.option("--max-connections-per-address", hidden=True, expose_value=False, callback=_point_to_proxy)
@click.option("--request-seconds", default=30.0, show_default=True, help="Time limit until a response begins.")
@click.option(
    "--shutdown-grace",
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for requests in progress at shutdown.",
)
@click.option(
    "--instances",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep N server processes alive behind the address.  [default: one process, without a watchdog]",
)
@click.option(
    "--instance-timeout",
    type=click.IntRange(min=2),
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="Time without a sign of life after which the watchdog replaces an instance.",
)
@click.option("--views", type=_ViewStorageChoice(VIEW_STORAGES), help="Storage of file views.  [default: disk]")
@click.option("--views-folder", metavar="FOLDER", help="Folder of file views.  [default: .nova/views]")
def serve(
    deployment: Deployment,
    /,
    max_body: int,
    views: str | None,
    views_folder: str | None,
    proxies: tuple[str, ...],
    public_names: tuple[str, ...],
    instances: int | None,
    instance_timeout: int,
    **options: Any,
) -> CommandResult:
    """Serve channels over HTTP, under /v1: file lists from file views, rows as Arrow streams, inserts, maintenance and
    status. /v1/openapi.json describes all routes.

    By default, only this machine can reach the service, and every caller has all rights. To listen on other addresses,
    the service needs tokens, and TLS or a named proxy. SIGTERM and Ctrl-C stop it after the requests in progress.
    If [tool.nova.notify] has notifiers, the service delivers their notifications, too.

    With --instances, a watchdog replaces each server process that ends or hangs. SIGHUP replaces all server processes
    after their requests in progress.

    JSON: {"url": address of the service}
    """
    from nova_assets.service.http.config import ServiceConfig

    config = ServiceConfig(max_body=max_body * 2**20, proxies=proxies, public_names=public_names, **options)
    configured = deployment.settings
    settings = replace(
        configured,
        service="embedded",
        views=views or configured.views,
        views_folder=str(configured.root / (views_folder or configured.views_folder)),
    )
    url = (
        _serve_in_this_process(deployment, settings, config)
        if instances is None
        else _serve_instances(deployment, settings, config, instances, instance_timeout)
    )
    return CommandResult({"url": url}, lambda console: console.print("stopped"))


def _serve_in_this_process(deployment: Deployment, settings: Settings, config: ServiceConfig) -> str:
    from nova_assets.service.http.access_log import configure_json_logging

    with _open_server(deployment, settings, config, None, Path(settings.views_folder)) as server:
        url = server.listen()
        configure_json_logging()
        _announce(url, config)
        server.run()
    return url


def _serve_instances(
    deployment: Deployment, settings: Settings, config: ServiceConfig, instances: int, instance_timeout: int
) -> str:
    if not is_default_catalog(settings):
        check_catalog_exists(settings)  # before a folder is created
    with _shared_metrics_folder(settings):
        with require_service_extra("the service needs"):
            from nova_assets.service import assembly
            from nova_assets.service.http.listening_socket import local_service_url, open_listening_socket
            from nova_assets.service.watchdog import claim_instance_folder, run_instances
        # Errors of the deployment end the command here. Connections must not be shared with the instances.
        with deployment.open() as store:
            exposure = assembly.check_exposure(store.catalog, config)
        listening_socket = open_listening_socket(config)
        url = local_service_url(listening_socket, config.host, exposure.tls)

        def open_server(shared_socket: socket.socket) -> contextlib.AbstractContextManager[Server]:
            folder = claim_instance_folder(Path(settings.views_folder), instances)
            return _open_server(deployment, settings, config, shared_socket, folder, creation="never")

        _announce(url, config)
        run_instances(
            listening_socket,
            open_server,
            instances=instances,
            instance_timeout=instance_timeout,
            shutdown_grace=config.shutdown_grace,
        )
    return url


@contextlib.contextmanager
def _open_server(
    deployment: Deployment,
    settings: Settings,
    config: ServiceConfig,
    listening_socket: socket.socket | None,
    views_folder: Path,
    creation: CatalogCreation = "default",
) -> Iterator[Server]:
    """Server over the store of a deployment. The context closes the store."""
    with require_service_extra("the service needs"):
        from nova_assets.file_views.sqlite_storage import open_storage
        from nova_assets.service import assembly
        from nova_assets.service.uploads import UploadSpool
        from nova_assets.store.notify_thread import notifications_in_background
    open_view_storage = partial(open_storage, settings.views, views_folder, int(settings.views_memory * 2**20))
    with deployment.open_with_view_storage(settings, open_view_storage, creation) as store:
        service = assembly.build_service(store, config)
        service.spool = UploadSpool(_service_folder(settings))
        server = assembly.build_server(service, listening_socket)
        with notifications_in_background(store):
            yield server


def _service_folder(settings: Settings) -> Path:
    """Folder for temporary files of running services. The system's temporary folder may be cleaned meanwhile."""
    return settings.default_data_folder / "service"


@contextlib.contextmanager
def _shared_metrics_folder(settings: Settings) -> Iterator[None]:
    """Let prometheus_client share the metrics of all instances in a folder, deleted at the end. It reads the variable
    when it is first imported.
    """
    from nova_assets.service.own_folder import OwnFolder

    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):  # another folder was chosen
        yield
        return
    folder = OwnFolder(_service_folder(settings), "nova-instances-")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder.ensure())
    try:
        yield
    finally:
        del os.environ["PROMETHEUS_MULTIPROC_DIR"]
        folder.close()


def _announce(url: str, config: ServiceConfig) -> None:
    from nova_assets.service.http.exposure import is_any_address

    elsewhere = " and all other addresses of this machine" if is_any_address(config.host) else ""
    print_to_stderr(f"listening on {url}{elsewhere}")
