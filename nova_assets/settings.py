"""Settings, from arguments, ``NOVA_*`` variables, ``[tool.nova]`` in pyproject.toml and defaults (DESIGN §8)."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from nova_assets.errors import SettingsError
from nova_assets.http_addresses import check_http_address, split_addresses
from nova_assets.key_prefix import parse_key_prefix
from nova_assets.masking import mask_address, mask_nested, mask_setting_value
from nova_assets.renamed import NEW_SETTING_NAMES, NEW_SETTING_VALUES
from nova_assets.s3_settings import spark_s3_settings
from nova_assets.setting_secrets import remember_setting_secrets
from nova_assets.spark_location import check_spark_location
from nova_assets.suggestions import did_you_mean

CATALOG_PATIENCE = 60.0
"""Seconds to wait for a catalog that is locked or cannot be reached."""

CATALOG_TIMEOUT = 60.0
"""Time limit of one statement to a PostgreSQL catalog, in seconds."""

THROTTLE_BUDGET = 120.0
"""Seconds for which one request waits for an object store that throttles it."""

_SCHEMES = frozenset({"file", "s3", "s3a", "s3n", "hdfs", "webhdfs", "gs", "abfs", "abfss", "wasb", "wasbs", "http"})
"""Address schemes. A warehouse with one of them and a single slash, or none, is a mistyped address, not a folder."""

DEFAULT_HOME = ".nova"
"""Folder below ``Settings.root`` for everything without a configured place."""

VIEW_STORAGES = ("disk", "memory")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one deployment.

    Args:
        catalog: SQLAlchemy URL of the catalog, ``sqlite:///...`` or ``postgresql+psycopg://...``.
        warehouse: folder of all blocks, or ``s3://BUCKET/PREFIX``, which is reached with the ``AWS_...`` variables.
        project: ``package.module:attribute`` of the ``nova.Project``. None for a deployment with channels only.
        spark: ``local`` for a session of this process. ``server`` for a Spark Connect server of this deployment, which
            starts on first use and stays warm until ``nova spark stop``. ``sc://host:port`` for an existing server.
            ``spark://host:port`` for a session of this process on the workers of a standalone cluster.
        spark_config: further settings of a session that is created, such as ``spark.driver.memory``.
        catalog_patience: seconds to wait for a catalog that is locked, restarting or out of reach.
        catalog_timeout: time limit of one statement to a PostgreSQL catalog, in seconds.
        lease: seconds that other processes leave an execution alone after its last lease renewal.
        grace: seconds after which the staged files of a dead execution are deleted.
        gc_grace: seconds after which the files of a collected block are deleted.
        start_timeout: seconds after which a launched Dagster run that has not started counts as lost.
        throttle_budget: seconds for which one request to an object store may wait while the store throttles it.
        strategy: read strategy of keyed channels, also for compaction. ``auto`` picks the cheapest. ``arrow``,
            ``buckets`` or ``spark`` is used wherever it is possible.
        dagster_url: address of Dagster's webserver, for runs that are launched at once.
        key_prefix: first parts of the project's asset keys in Dagster.
        service: source of file views: the address of a service (``nova serve``), several addresses of services with
            the same catalog (separated by commas), ``embedded``, or None for the catalog.
        service_token: access token for that service.
        service_timeout: seconds to wait for the service before the catalog is asked instead.
        views: storage of file views in ``nova serve``, one of ``VIEW_STORAGES``.
        views_folder, views_memory: its folder, and the limit of its memory in MiB (none for ``memory``).
        notify: table of the notifiers, which ``parse_notify_settings`` checks when it is needed.
        root: folder of the project, from which relative addresses are resolved and a relative ``project`` is imported.
        sources: setting -> the layer that it came from, for ``nova doctor``.
    """

    catalog: str
    warehouse: str
    project: str | None = None
    catalog_patience: float = CATALOG_PATIENCE
    catalog_timeout: float = CATALOG_TIMEOUT
    lease: float = 120.0
    grace: float = 60.0
    gc_grace: float = 3600.0
    start_timeout: float = 60.0
    throttle_budget: float = THROTTLE_BUDGET
    spark: str = "local"
    spark_config: Mapping[str, str] = field(default_factory=dict)
    strategy: str = "auto"
    dagster_url: str = "http://localhost:3000"
    key_prefix: tuple[str, ...] = ()
    service: str | None = None
    service_token: str | None = field(default=None, repr=False)
    service_timeout: float = 2.0
    views: str = "disk"
    views_folder: str = ""
    views_memory: float = 64.0
    notify: Mapping[str, Any] = field(default_factory=dict, repr=False)
    root: Path = field(default_factory=Path.cwd)
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        remember_setting_secrets({f.name: getattr(self, f.name) for f in fields(self)}, self.root)

    def __repr__(self) -> str:
        """The settings that differ from the defaults, without secrets, on at most two lines."""
        shown = {f.name: mask_nested(getattr(self, f.name)) for f in fields(self) if f.repr}
        shown["spark_config"] = self.masked_spark_config
        of_interest = [n for n in shown if n in ("catalog", "warehouse") or self.sources.get(n, "default") != "default"]
        text = ", ".join(f"{name}={str(shown[name])[:60]!r}" for name in of_interest)
        return f"Settings({text if len(text) < 147 else text[:146] + '…'})"

    @property
    def masked_spark_config(self) -> dict[str, str]:
        """``spark_config`` without its secrets."""
        return {name: mask_setting_value(name, value) for name, value in self.spark_config.items()}

    @property
    def service_addresses(self) -> tuple[str, ...]:
        """Addresses of the service. Empty for an embedded service, and for the catalog alone."""
        return () if self.service in (None, "embedded") else split_addresses(str(self.service))

    @property
    def default_data_folder(self) -> Path:
        """Folder of everything without a configured place."""
        return self.root / DEFAULT_HOME


_IN_SECONDS = (
    *("catalog_patience", "catalog_timeout", "lease", "grace", "gc_grace"),
    *("start_timeout", "throttle_budget", "service_timeout"),
)
_SETTING_NAMES = (
    *("catalog", "warehouse", "project", *_IN_SECONDS),
    *("spark", "spark_config", "strategy", "dagster_url", "key_prefix"),
    *("service", "service_token", "views", "views_folder", "views_memory", "notify"),
)


def load_settings(start_folder: Path | None = None, **arguments: Any) -> Settings:
    """Load the settings for a folder.

    Relative addresses are resolved from the project's folder, wherever a command is started. The project's folder is
    the folder of the first pyproject.toml, upwards, if it has a table [tool.nova]; otherwise, the start folder.

    Args:
        start_folder: folder in which the search for pyproject.toml starts, upwards. By default, the current folder.
        arguments: settings that the caller passes. None counts as not passed.

    Raises:
        SettingsError: pyproject.toml is unreadable or has an unknown setting, or a setting has an invalid value.
    """
    start_folder = (start_folder or Path.cwd()).resolve()
    project_folder, table = _find_tool_nova(start_folder)
    _check_not_renamed(arguments, "argument {}")
    _check_not_renamed(
        {n for n in NEW_SETTING_NAMES if os.environ.get(f"NOVA_{n.upper()}")}, "environment variable NOVA_{}", str.upper
    )
    root = project_folder or start_folder
    environment = {n: os.environ[f"NOVA_{n.upper()}"] for n in _SETTING_NAMES if os.environ.get(f"NOVA_{n.upper()}")}
    values = _default_values(root / DEFAULT_HOME)
    sources = dict.fromkeys(values, "default")
    for layer, layer_values in (("pyproject.toml", table), ("environment", environment), ("argument", arguments)):
        for name, value in layer_values.items():
            if value is not None:
                values[name], sources[name] = value, layer
    remember_setting_secrets(values, root)  # before an error can quote one
    return _settings_from_values(values, root, sources)


def _default_values(home: Path) -> dict[str, Any]:
    """Setting -> its default value."""
    return {
        "catalog": f"sqlite:///{home / 'catalog.db'}",
        "warehouse": str(home / "warehouse"),
        "project": None,
        "catalog_patience": CATALOG_PATIENCE,
        "catalog_timeout": CATALOG_TIMEOUT,
        "lease": 120.0,
        "grace": 60.0,
        "gc_grace": 3600.0,
        "start_timeout": 60.0,
        "throttle_budget": THROTTLE_BUDGET,
        "spark": "local",
        "spark_config": {},
        "strategy": "auto",
        "dagster_url": "http://localhost:3000",
        "key_prefix": (),
        "service": None,
        "service_token": None,
        "service_timeout": 2.0,
        "views": "disk",
        "views_folder": str(home / "views"),
        "views_memory": 64.0,
        "notify": {},
    }


def _settings_from_values(values: Mapping[str, Any], root: Path, sources: Mapping[str, str]) -> Settings:
    """Validated settings. Raises SettingsError for an invalid value."""
    return Settings(
        catalog=_resolve_catalog_url(str(values["catalog"]), root),
        warehouse=_resolve_warehouse(str(values["warehouse"]), root),
        project=values["project"],
        **{name: _parse_seconds(name, values[name]) for name in _IN_SECONDS},
        spark=check_spark_location(values["spark"]),
        spark_config={
            **spark_s3_settings(str(values["warehouse"]), _parse_seconds("throttle_budget", values["throttle_budget"])),
            **_parse_spark_config(values["spark_config"]),
        },
        strategy=_check_one_of("strategy", values["strategy"], ("auto", "arrow", "buckets", "spark")),
        dagster_url=check_http_address("dagster_url", values["dagster_url"]),
        key_prefix=parse_key_prefix(values["key_prefix"]),
        service=_check_service(values["service"]),
        service_token=_check_token(values["service_token"]),
        views=_check_one_of("views", values["views"], VIEW_STORAGES),
        views_memory=_parse_positive_number("views_memory", values["views_memory"], "a number of MiB such as 64"),
        views_folder=str((root / str(values["views_folder"])).absolute()),
        notify=values["notify"],
        root=root,
        sources=sources,
    )


def _check_not_renamed(names: Iterable[str], place: str, spell: Callable[[str], str] = str) -> None:
    """Raises SettingsError if a setting has another name now.

    Args:
        place: where the names stand, with {} for a name.
        spell: how that place spells a name.
    """
    for name in names:
        if name in NEW_SETTING_NAMES:
            raise SettingsError(
                f"the setting {name!r} is now called {NEW_SETTING_NAMES[name]!r}",
                found=place.format(spell(name)),
                expected=place.format(spell(NEW_SETTING_NAMES[name])),
            )


_parse_toml = lru_cache(maxsize=16)(tomllib.loads)  # each step of a Dagster run loads the settings


def _find_tool_nova(start_folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """Folder and [tool.nova] of the first pyproject.toml, upwards, if it has such a table. Raises SettingsError."""
    folders = (start_folder, *start_folder.parents)
    folder = next((f for f in folders if (f / "pyproject.toml").is_file()), None)
    table = None if folder is None else _read_tool_nova(folder / "pyproject.toml")
    return (None, {}) if table is None else (folder, table)


def _read_tool_nova(pyproject: Path) -> dict[str, Any] | None:
    """[tool.nova] of a file; None if the file has no such table. Raises SettingsError."""
    try:
        table = _parse_toml(pyproject.read_text(encoding="utf-8")).get("tool", {}).get("nova")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{pyproject} cannot be read", found=str(error), expected="valid TOML") from error
    if table is None:
        return None
    _check_not_renamed(table, f"[tool.nova] in {pyproject}: {{}}")
    unknown = sorted(set(table) - set(_SETTING_NAMES))
    if unknown:
        raise SettingsError(
            f"[tool.nova] in {pyproject} has unknown settings{did_you_mean(unknown[0], _SETTING_NAMES)}",
            found=", ".join(unknown),
            expected=", ".join(_SETTING_NAMES),
        )
    return dict(table)


def is_warehouse_url(warehouse: str) -> bool:
    """Whether a warehouse is an address with a scheme, well-formed or not. Otherwise it is a path."""
    scheme, colon, rest = warehouse.partition(":")
    return bool(colon) and (rest.startswith("//") or scheme.lower() in _SCHEMES)


_LOOKS_LIKE_CREDENTIALS = re.compile(
    r"(?i)\bpass(word|wd)?\s*=|\b(host|hostaddr|dbname|port|user)\s*=|^\s*(postgres(ql)?|sqlite)[+\w]*:"
)
"""Database parameters, and addresses without slashes. Both may hold a password, and neither is a path."""


def _resolve_catalog_url(url: str, root: Path) -> str:
    """Complete a catalog URL. A path means SQLite, ``postgresql://`` means the psycopg 3 driver.

    Raises:
        SettingsError: the value is neither a path nor an address, and may hold a password.
    """
    if "://" not in url:
        if _LOOKS_LIKE_CREDENTIALS.search(url):
            raise SettingsError(
                "setting 'catalog' is neither a path nor an address",
                expected="FILE, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
                next="the value is not shown, because it may contain a password",
            )
        return f"sqlite:///{(root / url).absolute()}"
    if url.startswith("postgres://") or url.startswith("postgresql://"):
        return "postgresql+psycopg://" + url.split("://", 1)[1]
    if url.startswith("sqlite+pysqlite://"):
        url = "sqlite://" + url.split("://", 1)[1]
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith("sqlite:////") and url != prefix and ":memory:" not in url:
        return f"{prefix}{(root / url.removeprefix(prefix)).absolute()}"
    return url


def _resolve_warehouse(address: str, root: Path) -> str:
    """Complete a warehouse address. A path is relative to the project's root.

    Raises:
        SettingsError: the address contains credentials of the object store.
    """
    if not is_warehouse_url(address):
        return str((root / address).absolute())
    if "@" not in address.partition("://")[2].partition("/")[0]:
        return address
    raise SettingsError(
        "setting 'warehouse' contains a user or a password",
        found=mask_address(address),
        expected="s3://BUCKET/PREFIX; keys are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def _check_one_of(setting_name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return str(value)
    if new_value := NEW_SETTING_VALUES.get(setting_name, {}).get(str(value)):
        raise SettingsError(
            f"setting {setting_name!r}: {value!r} is now called {new_value!r}", found=repr(value), expected=new_value
        )
    raise SettingsError(
        f"setting {setting_name!r} has an unknown value{did_you_mean(value, allowed)}",
        found=repr(value),
        expected=", ".join(allowed),
    )


def _check_service(value: Any) -> str | None:
    if value in (None, "", "none") or value == []:
        return None
    if value == "embedded":
        return "embedded"
    addresses = split_addresses(value if isinstance(value, list | tuple) else str(value))
    return ",".join(check_http_address("service", address) for address in addresses)


def _check_token(value: Any) -> str | None:
    if value in (None, ""):
        return None
    if isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value:
        return value
    raise SettingsError(
        "setting 'service_token' is no token",
        found="another value, not shown because it may be a secret",
        expected="the text that nova token add printed: nova_…",
    )


def _parse_spark_config(value: Any) -> dict[str, str]:
    """Spark settings from a table, or from ``name=value;name=value`` in the environment."""
    if isinstance(value, str):
        pairs = [p.partition("=") for p in value.split(";") if p.strip()]
        value = {name.strip(): text.strip() for name, sep, text in pairs if sep}
        right = len(value) == len(pairs)
    else:
        right = isinstance(value, Mapping)
    if not right or not all(str(name).startswith("spark.") for name in value):
        raise SettingsError(
            "setting 'spark_config' is unreadable",
            found="another value, not shown because it may contain secrets",
            expected='a table of Spark settings, or "spark.driver.memory=8g;spark.sql.shuffle.partitions=64"',
        )
    return {str(name): str(text) for name, text in value.items()}


def _parse_seconds(setting_name: str, value: Any) -> float:
    return _parse_positive_number(setting_name, value, "a number of seconds such as 120")


def _parse_positive_number(setting_name: str, value: Any, expected: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"setting {setting_name!r} is not a number", found=repr(value), expected=expected
        ) from error
    if not 0 < number < float("inf"):
        raise SettingsError(f"setting {setting_name!r} is not positive", found=value, expected=f"{expected}, above 0")
    return number
