"""Checks of ``nova doctor``. A check yields findings, also for errors, and does not create or migrate anything."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nova_assets.cli.deployment import Deployment, read_catalog_version, sqlite_file_path
from nova_assets.cli.rendering import format_bytes, format_duration, pluralize
from nova_assets.masking import mask_address, mask_nested
from nova_assets.nova_error import NovaError
from nova_assets.settings import Settings

Status = Literal["ok", "warning", "wrong"]

REQUIRED_PACKAGES = ("pyspark", "dagster", "dagster-pyspark", "pyarrow", "pandas", "sqlalchemy", "alembic")
"""Required packages whose version matters."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, as one line of the doctor.

    Args:
        status: ``ok``, ``warning`` (works, but deserves attention) or ``wrong``.
        message: result as text.
        advice: advice, often a command to type; None if all is well.
        details: result as JSON values for programs.
        name: name of the check; ``run_check`` names findings without one.
    """

    status: Status
    message: str
    advice: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        """Mask secrets in all texts and details."""
        for name in ("message", "advice", "details"):
            object.__setattr__(self, name, mask_nested(getattr(self, name)))


def run_all_checks(deployment: Deployment, start_spark: bool) -> Iterator[Finding]:
    """Run all checks, in the order in which a deployment needs their subjects."""
    yield from run_check("python", check_python)
    yield from run_check("packages", check_packages)
    yield from run_check("java", check_java)
    yield from run_check("spark", lambda: check_spark(deployment if start_spark else None))
    yield from run_check("dagster", check_dagster)
    try:
        settings = deployment.settings
    except Exception as error:
        yield _error_finding(
            "settings", error, "correct the settings; until then catalog, warehouse and project are not checked"
        )
        return
    yield from run_check("settings", lambda: check_settings(settings))
    yield from run_check("catalog", lambda: check_catalog(settings))
    yield from run_check("warehouse", lambda: check_warehouse_access(settings))
    yield from run_check("project", lambda: check_project(deployment))
    if settings.service is not None:
        yield from run_check("service", lambda: check_service(settings))


def run_check(finding_name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings of a check. An error of the check becomes a finding."""
    try:
        yield from [replace(f, name=f.name or finding_name) for f in check()]
    except Exception as error:
        yield _error_finding(finding_name, error)


def _error_finding(finding_name: str, error: Exception, default_advice: str | None = None) -> Finding:
    if isinstance(error, NovaError):
        parts = [
            error.what,
            *(f"{k}: {v}" for k, v in (("found", error.found), ("expected", error.expected)) if v is not None),
        ]
        advice = (error.next or "").removesuffix("nova doctor").removesuffix("; then: ")  # the user is running it
        return Finding("wrong", "\n".join(parts), advice or default_advice, {"error": error.as_dict()}, finding_name)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return Finding("wrong", what, default_advice, {"error": {"code": "NOVA-UNEXPECTED", "what": what}}, finding_name)


def check_python() -> Iterator[Finding]:
    """Version and path of Python."""
    version = platform.python_version()
    details = {"version": version, "executable": sys.executable}
    is_supported = sys.version_info >= (3, 11)
    advice = None if is_supported else "install Python 3.11 or newer, and nova-assets into it"
    yield Finding("ok" if is_supported else "wrong", f"{version}, {sys.executable}", advice, details)


def check_packages() -> Iterator[Finding]:
    """Versions of this package and of its required packages."""
    versions = {name: _installed_version(name) for name in REQUIRED_PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    versions_text = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    details = {"nova-assets": _installed_version("nova-assets"), **versions}
    if missing:
        yield Finding("wrong", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}", details)
    elif int((versions["pandas"] or "0").partition(".")[0]) >= 3:
        yield Finding(
            "warning", f"{versions_text}; PySpark does not fully support pandas 3", "pip install 'pandas<3'", details
        )
    else:
        yield Finding("ok", f"nova-assets {details['nova-assets']}, {versions_text}", None, details)


def check_java() -> Iterator[Finding]:
    """Java installation on which Spark would start."""
    from nova_assets.engine.session.java import find_java

    if os.environ.get("SPARK_REMOTE") or os.environ.get("NOVA_SPARK", "").startswith("sc://"):
        yield Finding("ok", "not needed: the environment names a Spark server")
        return
    java_install = find_java()
    details = {"version": java_install.version, "home": str(java_install.home), "source": java_install.source}
    yield Finding("ok", f"{java_install.version}, {java_install.home} (from {java_install.source})", None, details)


def check_spark(deployment_to_start: Deployment | None) -> Iterator[Finding]:
    """Version of Spark, and the result of a small job if Spark is started.

    Args:
        deployment_to_start: deployment with whose settings Spark is started; None to leave Spark stopped.
    """
    version = _installed_version("pyspark")
    if version is None:
        yield Finding("wrong", "pyspark is not installed", "pip install 'nova-assets'")
    elif deployment_to_start is None:
        yield Finding("ok", f"{version}, not started (nova doctor --spark starts it)", None, {"version": version})
    else:
        started_at = time.monotonic()
        row_count, running_version = _run_spark_test_job(deployment_to_start.settings)
        duration = time.monotonic() - started_at
        details = {"version": running_version, "seconds": round(duration, 3)}
        is_correct = row_count == 1000
        message = f"{running_version}, started and counted to {row_count} in {format_duration(duration)}"
        yield Finding(
            "ok" if is_correct else "wrong", message, None if is_correct else "nova doctor --spark, again", details
        )


class _SparkTestResult(NamedTuple):
    row_count: int
    spark_version: str


def _run_spark_test_job(settings: Settings) -> _SparkTestResult:
    """Start Spark and count the rows of a small range."""
    from nova_assets.engine.session.spark_session import get_or_build_session

    session = get_or_build_session(settings.spark, settings.default_data_folder, settings.spark_config)
    return _SparkTestResult(session.range(1000).count(), session.version)


def check_dagster() -> Iterator[Finding]:
    """Version of Dagster and its home folder."""
    version, home = _installed_version("dagster"), os.environ.get("DAGSTER_HOME")
    details = {"version": version, "home": home}
    if version is None:
        yield Finding("wrong", "dagster is not installed", "pip install 'nova-assets'", details)
    elif home and not Path(home).is_dir():
        yield Finding(
            "warning", f"{version}; DAGSTER_HOME is {home}, which is not a folder", f"mkdir -p {home}", details
        )
    else:
        yield Finding("ok", f"{version}, {f'home {home}' if home else 'DAGSTER_HOME is not set'}", None, details)


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Value and origin of each setting."""
    values = {
        "project": settings.project or "(none)",
        "catalog": mask_address(settings.catalog),
        "warehouse": settings.warehouse,
        "lease": f"{settings.lease:g} s",
        "grace": f"{settings.grace:g} s",
        "spark": settings.spark,
        "spark_config": "; ".join(f"{k}={v}" for k, v in settings.masked_spark_config.items()) or "(none)",
    }
    for name, value in values.items():
        source = settings.sources.get(name, "default")
        message = {"environment": f"the environment (NOVA_{name.upper()})", "argument": f"--{name}"}.get(source, source)
        details = {"value": value, "source": source}
        yield Finding("ok", f"{value}  from {message}", None, details, f"setting {name}")


def check_catalog(settings: Settings) -> Iterator[Finding]:
    """Whether the catalog exists, has a supported version and is writable."""
    url, kind = mask_address(settings.catalog), settings.catalog.partition(":")[0].partition("+")[0]
    details: dict[str, Any] = {"kind": kind, "url": url}
    version = read_catalog_version(settings.catalog)
    details["version"] = version
    file = sqlite_file_path(settings.catalog)
    if version is None:
        writable_parent = None if file is None else _nearest_existing_path(file)
        if writable_parent is not None and not os.access(writable_parent, os.W_OK):
            yield Finding(
                "wrong",
                f"{url} does not exist, and {writable_parent} cannot be written",
                "set NOVA_CATALOG to another file",
                details,
            )
            return
        yield Finding("warning", f"{url}: there is no catalog yet", "nova init", details)
        return
    if file is not None and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        yield Finding("wrong", f"{url} cannot be written", f"chmod u+w {file} {file.parent}", details)
        return
    finding = _check_existing_catalog(settings.catalog, version, url, details)
    yield finding if file is None or finding.status != "ok" else _warn_of_network(finding, file)


def _warn_of_network(finding: Finding, file: Path) -> Finding:
    """The finding, as a warning if the catalog's file is on a network's file system."""
    from nova_assets.catalog.database.file_system import network_file_system

    file_system = network_file_system(file)
    if file_system is None:
        return finding
    return replace(
        finding,
        status="warning",
        message=f"{finding.message}; {file.parent} is on a network's file system ({file_system}): "
        "SQLite loses commits there if processes of two hosts use the catalog",
        advice="keep the file on a local disk, or set NOVA_CATALOG to a PostgreSQL database",
        details={**finding.details, "file_system": file_system},
    )


def _check_existing_catalog(
    catalog_url: str, catalog_version: str, masked_url: str, details: dict[str, Any]
) -> Finding:
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.open_catalog import open_catalog

    if catalog_version < schema_version.HEAD:
        message = f"{masked_url}, version {catalog_version}; this package works with {schema_version.HEAD}"
        return Finding("warning", message, "nova init, which migrates it", details)
    with contextlib.closing(open_catalog(catalog_url)) as opened:  # equal version: no migration; newer: an error
        details |= {"channels": len(opened.definitions.channels()), "writable": True}
        message = f"{opened.identity.check_writable()}, can be written, {pluralize(details['channels'], 'channel')}"
        copied_from = opened.identity.copied_from()
    if copied_from is None:
        return Finding("ok", message, None, details)
    return Finding(
        "warning",
        f"{message}; it is a copy of {copied_from}, and deletes nothing from the warehouse",
        "nova doctor --claim, if this copy owns the warehouse; commits of the original then fail",
        {**details, "copied_from": copied_from},
    )


def check_warehouse_access(settings: Settings) -> Iterator[Finding]:
    """Whether the warehouse is writable, and how much free space it has."""
    from nova_assets.engine.storage.remote_warehouse import open_warehouse

    opened_warehouse = open_warehouse(settings.warehouse)
    _check_warehouse_matches_catalog(settings)
    if "://" in opened_warehouse.address:
        details: dict[str, Any] = {"address": opened_warehouse.address, "exists": opened_warehouse.exists}
        yield Finding("ok", opened_warehouse.check_writable(), None, details | {"writable": True})
        return
    details = {"folder": str(opened_warehouse.root), "exists": opened_warehouse.root.is_dir()}
    existing_parent = _nearest_existing_path(opened_warehouse.root)
    if opened_warehouse.root.is_dir():
        opened_warehouse.check_writable()
    elif not existing_parent.is_dir() or not os.access(existing_parent, os.W_OK):
        what = "cannot be written" if existing_parent.is_dir() else "is not a folder"
        yield Finding(
            "wrong",
            f"{opened_warehouse.root} cannot be created: {existing_parent} {what}",
            "set NOVA_WAREHOUSE to another folder",
            details,
        )
        return
    free = shutil.disk_usage(existing_parent).free
    details |= {"free": free, "writable": True}
    message = (
        f"{opened_warehouse.root}, "
        f"{'can be written' if details['exists'] else 'created with the first block'}, {format_bytes(free)} free"
    )
    if free < 2**30:
        yield Finding("warning", message, "free some space: less than 1 GiB is left", details)
    else:
        yield Finding("ok", message, None, details)


def _check_warehouse_matches_catalog(settings: Settings) -> None:
    """Check that the catalog's blocks are in this warehouse, if there is a catalog of the current version.

    Raises:
        WarehouseMismatch: the catalog belongs to another warehouse.
    """
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.open_catalog import open_catalog
    from nova_assets.engine.spark_engine import SparkEngine
    from nova_assets.execution.warehouse_identity import check_warehouse_identity

    try:
        if read_catalog_version(settings.catalog) != schema_version.HEAD:
            return
    except NovaError:  # the catalog check reports this error
        return
    with contextlib.closing(open_catalog(settings.catalog)) as opened:
        check_warehouse_identity(opened, SparkEngine(settings.warehouse))


def check_project(deployment: Deployment) -> Iterator[Finding]:
    """Whether the project can be imported and is valid."""
    loaded = deployment.load_project()
    name = deployment.settings.project
    if loaded is None:
        advice = "to use bindings, name a nova.Project: --project, NOVA_PROJECT or project in [tool.nova]"
        yield Finding(
            "ok", "no project is configured: channels can be used, bindings cannot", advice, {"project": None}
        )
        return
    bindings, channels = [b.name for b in loaded.bindings], [c.name for c in loaded.channels]
    binding_names = f" ({', '.join(bindings)})" if bindings else ""
    message = f"{name}: {pluralize(len(bindings), 'binding')}{binding_names}, {pluralize(len(channels), 'channel')}"
    yield Finding("ok", message, None, {"project": name, "bindings": bindings, "channels": channels})


def check_service(settings: Settings) -> Iterator[Finding]:
    """Whether each service that serves file views answers. Without them, reads fall back to the catalog."""
    if settings.service == "embedded":
        yield Finding("ok", "each run keeps its own file views", None, {"url": settings.service})
        return
    for address in settings.service_addresses:
        yield _check_service_address(address, settings.service_timeout)


def _check_service_address(url: str, seconds: float) -> Finding:
    import httpx

    from nova_assets.http_addresses import trusted_ssl_context

    try:
        answer = httpx.get(f"{url}/readyz", timeout=seconds, trust_env=False, verify=trusted_ssl_context())
        message = f"status {answer.status_code}"
    except httpx.HTTPError as error:
        message = f"{type(error).__name__}: {error}".rstrip(": ")
    details = {"url": url, "ready": message == "status 200"}
    if details["ready"]:
        return Finding("ok", f"{url} is ready", None, details)
    what = f"{url} does not answer ({message}): reads use another address or the catalog instead"
    return Finding("warning", what, "check that nova serve runs there", details)


def _nearest_existing_path(path: Path) -> Path:
    """The path if it exists, otherwise its nearest existing parent."""
    return next((p for p in (path, *path.parents) if p.exists()), path)


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
