"""Settings: arguments, then ``NOVA_*`` variables, then ``[tool.nova]`` in pyproject.toml, then defaults (DESIGN §8)."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nova_assets.errors import SettingsError
from nova_assets.masking import mask_address, mask_setting, mask_values, remember_secrets
from nova_assets.renamed import SETTINGS
from nova_assets.suggestions import did_you_mean

CATALOG_PATIENCE = 60.0
"""Seconds for which a catalog that is locked or cannot be reached is waited for."""

CATALOG_TIMEOUT = 60.0
"""Seconds that one statement to a PostgreSQL catalog may take."""

_SCHEMES = frozenset({"file", "s3", "s3a", "s3n", "hdfs", "webhdfs", "gs", "abfs", "abfss", "wasb", "wasbs", "http"})
"""Of addresses; with one slash, or with none, they are mistyped, and no names of folders."""

DEFAULT_HOME = ".nova"
"""The folder of everything that is made without being asked where, below ``Settings.root``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where everything is.

    Args:
        catalog: SQLAlchemy URL of the catalog, ``sqlite:///...`` or ``postgresql+psycopg://...``.
        warehouse: folder that holds all blocks; or ``s3://BUCKET/PREFIX``, which is reached as ``AWS_...`` says.
        project: ``package.module:attribute`` of the ``nova.Project``; None for channels alone.
        spark: ``local`` for a session of this process; ``server`` for a Spark Connect server of this deployment,
            started when it is first needed and kept warm until ``nova spark stop``; ``sc://host:port`` for one that is
            there.
        spark_config: further settings of the session that is made, such as ``spark.driver.memory``.
        catalog_patience: seconds for which a catalog that is locked, restarting or out of reach is waited for.
        catalog_timeout: seconds that one statement to a PostgreSQL catalog may take.
        lease: seconds for which an execution is left alone when it no longer renews its lease.
        grace: seconds after which staged files of a dead execution are swept.
        gc_grace: seconds after which files of a collected block are deleted.
        start_timeout: seconds after which a run of Dagster that was launched and has not begun is taken for lost.
        strategy: how keyed channels are read and compacted: ``auto`` by estimated cost, or always ``arrow``,
            ``buckets`` or ``spark`` where that strategy can compute the read.
        dagster_url: where Dagster's webserver is, for runs that are launched at once.
        service: where views of channels come from: the address of a service (``nova serve``), or ``embedded`` for one
            of this process; None for the catalog alone.
        service_token: by which that service knows us.
        service_timeout: seconds that it may take; then the catalog is asked.
        views: what ``nova serve`` keeps them in: ``disk`` or ``memory``.
        views_folder: where it keeps them.
        views_memory: MiB of those on disk that it keeps in memory.
        root: where a relative ``project`` is imported from.
        sources: setting -> where it came from, for ``nova doctor``.
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
    spark: str = "local"
    spark_config: Mapping[str, str] = field(default_factory=dict)
    strategy: str = "auto"
    dagster_url: str = "http://localhost:3000"
    service: str | None = None
    service_token: str | None = field(default=None, repr=False)
    service_timeout: float = 2.0
    views: str = "disk"
    views_folder: str = ""
    views_memory: float = 64.0
    root: Path = field(default_factory=Path.cwd)
    sources: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The settings that somebody has set, without secrets, on at most two lines."""
        shown = {f.name: mask_values(getattr(self, f.name)) for f in fields(self) if f.repr}
        shown["spark_config"] = self.masked_spark_config
        of_interest = [n for n in shown if n in ("catalog", "warehouse") or self.sources.get(n, "default") != "default"]
        text = ", ".join(f"{name}={str(shown[name])[:60]!r}" for name in of_interest)
        return f"Settings({text if len(text) < 147 else text[:146] + '…'})"

    @property
    def masked_spark_config(self) -> dict[str, str]:
        """``spark_config`` without its secrets."""
        return {name: mask_setting(name, value) for name, value in self.spark_config.items()}

    @property
    def home(self) -> Path:
        """The folder of everything that is made without being asked where."""
        return self.root / DEFAULT_HOME


_SETTING_NAMES = (
    *("catalog", "warehouse", "project", "catalog_patience", "catalog_timeout"),
    *("lease", "grace", "gc_grace", "start_timeout"),
    *("spark", "spark_config", "strategy", "dagster_url"),
    *("service", "service_token", "service_timeout", "views", "views_folder", "views_memory"),
)


def load_settings(start_folder: Path | None = None, **arguments: Any) -> Settings:
    """The settings for a folder.

    Args:
        start_folder: where pyproject.toml is looked for, upwards; the current folder by default.
        arguments: what the caller gave; None counts as not given.

    Raises:
        SettingsError: pyproject.toml is unreadable or has an unknown setting, or a number is none.
    """
    start_folder = (start_folder or Path.cwd()).resolve()
    file = next(
        (p / "pyproject.toml" for p in (start_folder, *start_folder.parents) if (p / "pyproject.toml").is_file()), None
    )
    table = _read_tool_nova(file)
    _check_not_renamed(arguments, "argument {}")
    _check_not_renamed(
        {n for n in SETTINGS if os.environ.get(f"NOVA_{n.upper()}")}, "environment variable NOVA_{}", str.upper
    )
    root = file.parent if file is not None and table else start_folder
    home = root / DEFAULT_HOME
    values: dict[str, Any] = {
        "catalog": f"sqlite:///{home / 'catalog.db'}",
        "warehouse": str(home / "warehouse"),
        "project": None,
        "catalog_patience": CATALOG_PATIENCE,
        "catalog_timeout": CATALOG_TIMEOUT,
        "lease": 120.0,
        "grace": 60.0,
        "gc_grace": 3600.0,
        "start_timeout": 60.0,
        "spark": "local",
        "spark_config": {},
        "strategy": "auto",
        "dagster_url": "http://localhost:3000",
        "service": None,
        "service_token": None,
        "service_timeout": 2.0,
        "views": "disk",
        "views_folder": str(home / "views"),
        "views_memory": 64.0,
    }
    sources = dict.fromkeys(values, "default")
    environment = {n: os.environ[f"NOVA_{n.upper()}"] for n in _SETTING_NAMES if os.environ.get(f"NOVA_{n.upper()}")}
    for layer, given in (("pyproject.toml", table), ("environment", environment), ("argument", arguments)):
        for name, value in given.items():
            if value is not None:
                values[name], sources[name] = value, layer
    _remember_secrets(values)
    return Settings(
        catalog=_resolve_catalog_url(str(values["catalog"]), root),
        warehouse=_resolve_warehouse(str(values["warehouse"]), root),
        project=values["project"],
        catalog_patience=_parse_seconds("catalog_patience", values["catalog_patience"]),
        catalog_timeout=_parse_seconds("catalog_timeout", values["catalog_timeout"]),
        lease=_parse_seconds("lease", values["lease"]),
        grace=_parse_seconds("grace", values["grace"]),
        gc_grace=_parse_seconds("gc_grace", values["gc_grace"]),
        start_timeout=_parse_seconds("start_timeout", values["start_timeout"]),
        spark=_check_spark(values["spark"]),
        spark_config={**_spark_s3_settings(str(values["warehouse"])), **_parse_spark_config(values["spark_config"])},
        strategy=_check_one_of("strategy", values["strategy"], ("auto", "arrow", "buckets", "spark")),
        dagster_url=check_http_address("dagster_url", values["dagster_url"]),
        service=_check_service(values["service"]),
        service_token=_check_token(values["service_token"]),
        service_timeout=_parse_seconds("service_timeout", values["service_timeout"]),
        views=_check_one_of("views", values["views"], ("disk", "memory")),
        views_memory=_parse_positive_number("views_memory", values["views_memory"], "a number of MiB such as 64"),
        views_folder=str((root / str(values["views_folder"])).absolute()),
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
        if name in SETTINGS:
            raise SettingsError(
                f"the setting {name!r} is called {SETTINGS[name]!r} now",
                found=place.format(spell(name)),
                expected=place.format(spell(SETTINGS[name])),
            )


def _remember_secrets(values: Mapping[str, Any]) -> None:
    """Have the secrets of the settings masked wherever they appear, and those that servers are asked with."""
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    config = values["spark_config"]
    config = {str(k): str(v) for k, v in config.items()} if isinstance(config, Mapping) else {}
    if "spark_config" in texts:
        config = {name.strip(): text for name, _, text in (p.partition("=") for p in texts["spark_config"].split(";"))}
    remember_secrets(
        *texts.values(), values={**texts, **config, **{n: os.environ.get(n, "") for n in _SECRET_VARIABLES}}
    )


_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
"""Variables from which servers' own libraries take secrets."""


def _read_tool_nova(pyproject: Path | None) -> dict[str, Any]:
    if pyproject is None:
        return {}
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {}).get("nova", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{pyproject} cannot be read", found=str(error), expected="valid TOML") from error
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
    """Whether a warehouse means an address with a scheme, rightly written or not; otherwise it is a path."""
    scheme, colon, rest = warehouse.partition(":")
    return bool(colon) and (rest.startswith("//") or scheme.lower() in _SCHEMES)


_LOOKS_LIKE_CREDENTIALS = re.compile(
    r"(?i)\bpass(word|wd)?\s*=|\b(host|hostaddr|dbname|port|user)\s*=|^\s*(postgres(ql)?|sqlite)[+\w]*:"
)
"""Parameters of a database and addresses without their slashes, which may hold a password and are no paths."""


def _resolve_catalog_url(url: str, root: Path) -> str:
    """A path means SQLite; ``postgresql://`` means the psycopg 3 driver.

    Raises:
        SettingsError: it is neither, and may hold a password.
    """
    if "://" not in url:
        if _LOOKS_LIKE_CREDENTIALS.search(url):
            raise SettingsError(
                "setting 'catalog' is neither a path nor an address",
                expected="FILE, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE",
                next="it is not shown here, since it may hold a password",
            )
        return f"sqlite:///{(root / url).absolute()}"
    if url.startswith("postgres://") or url.startswith("postgresql://"):
        return "postgresql+psycopg://" + url.split("://", 1)[1]
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith("sqlite:////") and url != prefix and ":memory:" not in url:
        return f"{prefix}{(root / url.removeprefix(prefix)).absolute()}"
    return url


def _resolve_warehouse(address: str, root: Path) -> str:
    """A path is one from the project's root. Raises SettingsError where keys of the store stand in the address."""
    if not is_warehouse_url(address):
        return str((root / address).absolute())
    if "@" not in address.partition("://")[2].partition("/")[0]:
        return address
    raise SettingsError(
        "setting 'warehouse' holds a user or a password",
        found=mask_address(address),
        expected="s3://BUCKET/PREFIX; keys are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def check_http_address(setting_name: str, value: Any) -> str:
    with suppress(ValueError):  # of a port that is none
        parts = urlsplit(str(value))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return str(value)
    raise SettingsError(f"setting {setting_name!r} is no address", found=repr(value), expected='"http://host:port"')


def _check_one_of(setting_name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value in allowed:
        return str(value)
    raise SettingsError(
        f"setting {setting_name!r} is none{did_you_mean(value, allowed)}",
        found=repr(value),
        expected=", ".join(allowed),
    )


def _check_service(value: Any) -> str | None:
    return (
        None
        if value in (None, "", "none")
        else "embedded"
        if value == "embedded"
        else check_http_address("service", value)
    )


def _check_token(value: Any) -> str | None:
    if value in (None, ""):
        return None
    if isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value:
        return value
    raise SettingsError(
        "setting 'service_token' is no token",
        found="something else, which may be a secret and is not shown",
        expected="what nova token add has shown: nova_…",
    )


def _check_spark(value: Any) -> str:
    if value in ("local", "server") or str(value).startswith("sc://"):
        return str(value)
    raise SettingsError(
        "setting 'spark' names no Spark",
        found=repr(mask_address(str(value))),
        expected='"local", "server" or "sc://host:port"',
    )


def _parse_spark_config(value: Any) -> dict[str, str]:
    """A table, or ``name=value;name=value`` in the environment."""
    if isinstance(value, str):
        pairs = [p.partition("=") for p in value.split(";") if p.strip()]
        value = {name.strip(): text.strip() for name, sep, text in pairs if sep}
        right = len(value) == len(pairs)
    else:
        right = isinstance(value, Mapping)
    if not right or not all(str(name).startswith("spark.") for name in value):
        raise SettingsError(
            "setting 'spark_config' is unreadable",
            found="something else, which may hold secrets and is not shown",
            expected='a table of Spark settings, or "spark.driver.memory=8g;spark.sql.shuffle.partitions=64"',
        )
    return {str(name): str(text) for name, text in value.items()}


def s3_endpoint_and_region() -> tuple[str | None, str | None]:
    """The endpoint and the region of S3, as the variables say that every tool of the field reads."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return endpoint or None, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def _spark_s3_settings(warehouse: str) -> dict[str, str]:
    """How Spark reaches an object store: as everybody else does, by its variables. Keys it takes from them itself."""
    if not warehouse.startswith("s3://"):
        return {}
    endpoint, region = s3_endpoint_and_region()
    s3a = "spark.hadoop.fs.s3a"
    return {
        **({f"{s3a}.endpoint": endpoint, f"{s3a}.path.style.access": "true"} if endpoint else {}),
        f"{s3a}.endpoint.region": region or "us-east-1",
    }


def _parse_seconds(setting_name: str, value: Any) -> float:
    return _parse_positive_number(setting_name, value, "a number of seconds such as 120")


def _parse_positive_number(setting_name: str, value: Any, expected: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"setting {setting_name!r} is no number", found=repr(value), expected=expected) from error
    if not 0 < number < float("inf"):
        raise SettingsError(f"setting {setting_name!r} is not positive", found=value, expected=f"{expected}, above 0")
    return number
