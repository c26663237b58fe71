"""What ``nova doctor`` looks at. Each check gives findings and raises nothing; none makes or migrates anything."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from nova_assets.cli.deployment import Deployment, catalog_version, sqlite_file
from nova_assets.cli.rendering import plural, seconds, size
from nova_assets.errors import NovaError
from nova_assets.masking import mask_address, mask_values
from nova_assets.settings import Settings

Status = Literal["ok", "warning", "wrong"]

PACKAGES = ("pyspark", "dagster", "dagster-pyspark", "pyarrow", "pandas", "sqlalchemy", "alembic")
"""Those whose version matters, all of them required."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor.

    Args:
        name: what was looked at.
        status: ``ok``, ``warning`` (works, but look at it) or ``wrong``.
        says: what was found.
        next: what to type next, unless all is well.
        facts: the same for programs.
    """

    name: str
    status: Status
    says: str
    next: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Whatever was looked at, its secrets are not shown."""
        for name in ("says", "next", "facts"):
            object.__setattr__(self, name, mask_values(getattr(self, name)))


def look_at_everything(deployment: Deployment, start_spark: bool) -> Iterator[Finding]:
    """All findings, in the order in which one needs things."""
    yield from _guarded("python", python)
    yield from _guarded("packages", packages)
    yield from _guarded("java", java)
    yield from _guarded("spark", lambda: spark(deployment if start_spark else None))
    yield from _guarded("dagster", dagster)
    try:
        settings = deployment.settings
    except Exception as error:
        yield _failed("settings", error, "mend it; until then catalog, warehouse and project are not looked at")
        return
    yield from _guarded("settings", lambda: setting_lines(settings))
    yield from _guarded("catalog", lambda: catalog(settings))
    yield from _guarded("warehouse", lambda: warehouse(settings))
    yield from _guarded("project", lambda: project(deployment))
    if settings.service is not None:
        yield from _guarded("service", lambda: service(settings))


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Whatever a check meets is a finding, too."""
    try:
        yield from list(check())
    except Exception as error:
        yield _failed(name, error)


def _failed(name: str, error: Exception, next: str | None = None) -> Finding:
    if isinstance(error, NovaError):
        parts = [
            error.what,
            *(f"{k}: {v}" for k, v in (("found", error.found), ("expected", error.expected)) if v is not None),
        ]
        advice = (error.next or "").removesuffix("nova doctor").removesuffix("; then: ")  # which this is
        return Finding(name, "wrong", "\n".join(parts), advice or next, {"error": error.as_dict()})
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return Finding(name, "wrong", what, next, {"error": {"code": "NOVA-UNEXPECTED", "what": what}})


def python() -> Iterator[Finding]:
    """Which Python runs this."""
    version = platform.python_version()
    facts = {"version": version, "executable": sys.executable}
    right = sys.version_info >= (3, 11)
    next = None if right else "install Python 3.11 or newer, and nova-assets into it"
    yield Finding("python", "ok" if right else "wrong", f"{version}, {sys.executable}", next, facts)


def packages() -> Iterator[Finding]:
    """The versions of this package and of those that it stands on."""
    versions = {name: _version(name) for name in PACKAGES}
    missing = [name for name, version in versions.items() if version is None]
    shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    facts = {"nova-assets": _version("nova-assets"), **versions}
    if missing:
        yield Finding("packages", "wrong", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}", facts)
    elif int((versions["pandas"] or "0").partition(".")[0]) >= 3:
        yield Finding(
            "packages", "warning", f"{shown}; PySpark does not fully support pandas 3", "pip install 'pandas<3'", facts
        )
    else:
        yield Finding("packages", "ok", f"nova-assets {facts['nova-assets']}, {shown}", None, facts)


def java() -> Iterator[Finding]:
    """Which Java Spark would be started on."""
    from nova_assets.engine.session.java import find_java

    if os.environ.get("SPARK_REMOTE") or os.environ.get("NOVA_SPARK", "").startswith("sc://"):
        yield Finding("java", "ok", "not needed: the environment names a Spark server")
        return
    found = find_java()
    facts = {"version": found.version, "home": str(found.home), "source": found.source}
    yield Finding("java", "ok", f"{found.version}, {found.home} (from {found.source})", None, facts)


def spark(start: Deployment | None) -> Iterator[Finding]:
    """Spark's version; whether it works only if it is to be started, as this deployment has it."""
    version = _version("pyspark")
    if version is None:
        yield Finding("spark", "wrong", "pyspark is not installed", "pip install 'nova-assets'")
    elif start is None:
        yield Finding(
            "spark", "ok", f"{version}, not started (nova doctor --spark starts it)", None, {"version": version}
        )
    else:
        began = time.monotonic()
        counted, runs = _try_spark(start.settings)
        took = time.monotonic() - began
        facts = {"version": runs, "seconds": round(took, 3)}
        right = counted == 1000
        says = f"{runs}, started and counted to {counted} in {seconds(took)}"
        yield Finding("spark", "ok" if right else "wrong", says, None if right else "nova doctor --spark, again", facts)


def _try_spark(settings: Settings) -> tuple[int, str]:
    from nova_assets.engine.session.session import build

    session = build(settings.spark, settings.home, settings.spark_config)
    return session.range(1000).count(), session.version


def dagster() -> Iterator[Finding]:
    """Dagster's version and home."""
    version, home = _version("dagster"), os.environ.get("DAGSTER_HOME")
    facts = {"version": version, "home": home}
    if version is None:
        yield Finding("dagster", "wrong", "dagster is not installed", "pip install 'nova-assets'", facts)
    elif home and not Path(home).is_dir():
        yield Finding(
            "dagster", "warning", f"{version}; DAGSTER_HOME is {home}, which is no folder", f"mkdir -p {home}", facts
        )
    else:
        yield Finding(
            "dagster", "ok", f"{version}, {f'home {home}' if home else 'DAGSTER_HOME is not set'}", None, facts
        )


def setting_lines(settings: Settings) -> Iterator[Finding]:
    """Each setting, and where it comes from."""
    values = {
        "project": settings.project or "(none)",
        "catalog": mask_address(settings.catalog),
        "warehouse": settings.warehouse,
        "lease": f"{settings.lease:g} s",
        "grace": f"{settings.grace:g} s",
        "spark": settings.spark,
        "spark_config": "; ".join(f"{k}={v}" for k, v in settings.shown_spark_config.items()) or "(none)",
    }
    for name, value in values.items():
        source = settings.sources.get(name, "default")
        says = {"environment": f"the environment (NOVA_{name.upper()})", "argument": f"--{name}"}.get(source, source)
        yield Finding(f"setting {name}", "ok", f"{value}  from {says}", None, {"value": value, "source": source})


def catalog(settings: Settings) -> Iterator[Finding]:
    """Whether the catalog is there, of a version that this package works with, and can be written."""
    url, kind = mask_address(settings.catalog), settings.catalog.partition(":")[0].partition("+")[0]
    facts: dict[str, Any] = {"kind": kind, "url": url}
    version = catalog_version(settings.catalog)
    facts["version"] = version
    file = sqlite_file(settings.catalog)
    if version is None:
        place = None if file is None else _lasting_parent(file)
        if place is not None and not os.access(place, os.W_OK):
            yield Finding(
                "catalog",
                "wrong",
                f"{url} is not there, and {place} cannot be written",
                "set NOVA_CATALOG to another file",
                facts,
            )
            return
        yield Finding("catalog", "warning", f"{url}: there is no catalog yet", "nova init", facts)
        return
    if file is not None and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        yield Finding("catalog", "wrong", f"{url} cannot be written", f"chmod u+w {file} {file.parent}", facts)
        return
    yield _catalog_of_version(settings.catalog, version, url, facts)


def _catalog_of_version(given: str, version: str, url: str, facts: dict[str, Any]) -> Finding:
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.catalog import open_catalog

    if version < schema_version.HEAD:
        says = f"{url}, version {version}; this package works with {schema_version.HEAD}"
        return Finding("catalog", "warning", says, "nova init, which migrates it", facts)
    opened = open_catalog(given)  # of this version, so nothing is migrated; refused if it is of a newer one
    try:
        says = opened.check()
        facts |= {"channels": len(opened.channels()), "writable": True}
    finally:
        opened.close()
    return Finding("catalog", "ok", f"{says}, can be written, {plural(facts['channels'], 'channel')}", None, facts)


def warehouse(settings: Settings) -> Iterator[Finding]:
    """Whether the warehouse can be written, and what room it has."""
    from nova_assets.engine.storage.remote_warehouse import open_warehouse

    place = open_warehouse(settings.warehouse)
    _check_it_is_the_catalogs(settings)
    if "://" in place.address:
        facts: dict[str, Any] = {"address": place.address, "exists": place.exists}
        yield Finding("warehouse", "ok", place.check(), None, facts | {"writable": True})
        return
    facts = {"folder": str(place.root), "exists": place.root.is_dir()}
    there = _lasting_parent(place.root)
    if place.root.is_dir():
        place.check()
    elif not there.is_dir() or not os.access(there, os.W_OK):
        what = "cannot be written" if there.is_dir() else "is no folder"
        yield Finding(
            "warehouse",
            "wrong",
            f"{place.root} cannot be made: {there} {what}",
            "set NOVA_WAREHOUSE to another folder",
            facts,
        )
        return
    free = shutil.disk_usage(there).free
    facts |= {"free": free, "writable": True}
    says = f"{place.root}, {'can be written' if facts['exists'] else 'made with the first block'}, {size(free)} free"
    if free < 2**30:
        yield Finding("warehouse", "warning", says, "make room: less than 1 GiB is free", facts)
    else:
        yield Finding("warehouse", "ok", says, None, facts)


def _check_it_is_the_catalogs(settings: Settings) -> None:
    """See that the catalog's blocks are in this warehouse, where there is a catalog. Raises WarehouseMismatch."""
    from nova_assets.catalog import schema_version
    from nova_assets.catalog.catalog import open_catalog
    from nova_assets.engine.engine import SparkEngine
    from nova_assets.execution.warehouse_identity import check_warehouse

    try:
        if catalog_version(settings.catalog) != schema_version.HEAD:
            return
    except NovaError:  # which the finding about the catalog says
        return
    with contextlib.closing(open_catalog(settings.catalog)) as opened:
        check_warehouse(opened, SparkEngine(settings.warehouse))


def project(deployment: Deployment) -> Iterator[Finding]:
    """Whether the project can be imported and is sound."""
    loaded = deployment.load_project()
    name = deployment.settings.project
    if loaded is None:
        next = "for bindings, name a nova.Project: --project, NOVA_PROJECT or project in [tool.nova]"
        yield Finding(
            "project", "ok", "none is configured: channels can be used, bindings cannot", next, {"project": None}
        )
        return
    bindings, channels = [b.name for b in loaded.bindings], [c.name for c in loaded.channels]
    named = f" ({', '.join(bindings)})" if bindings else ""
    says = f"{name}: {plural(len(bindings), 'binding')}{named}, {plural(len(channels), 'channel')}"
    yield Finding("project", "ok", says, None, {"project": name, "bindings": bindings, "channels": channels})


def service(settings: Settings) -> Iterator[Finding]:
    """Whether the service answers through which channels are looked at. Nothing fails where it does not."""
    url = settings.service or ""
    if url == "embedded":
        yield Finding("service", "ok", "views are kept beside each run", None, {"url": url})
        return
    import httpx

    from nova_assets.file_views.trusted_certificates import trusted

    try:
        ready, seconds = f"{url.rstrip('/')}/readyz", settings.service_timeout
        answer = httpx.get(ready, timeout=seconds, trust_env=False, verify=trusted())
        says = f"status {answer.status_code}"
    except httpx.HTTPError as error:
        says = f"{type(error).__name__}: {error}".rstrip(": ")
    facts = {"url": url, "ready": says == "status 200"}
    if facts["ready"]:
        yield Finding("service", "ok", f"{url} is ready", None, facts)
    else:
        what = f"{url} does not answer ({says}): channels are looked at in the catalog meanwhile"
        yield Finding("service", "warning", what, "see that nova serve runs there", facts)


def _lasting_parent(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next((p for p in (path, *path.parents) if p.exists()), path)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
