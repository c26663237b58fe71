"""Secrets of a deployment's settings, which are masked from when the settings are loaded.

Some settings hold a secret. Others only name its place: ``token_env`` an environment variable, ``token_file`` a file.
A task may use the same secret and quote it in an error, in a process that never uses the setting. So each process reads
all of these places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nova_assets.http_addresses import split_addresses
from nova_assets.masking import remember_secrets, remember_whole_secret

_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")
"""Environment variables from which client libraries take credentials."""

_MAX_SECRET_BYTES = 1 << 16


def remember_setting_secrets(values: Mapping[str, Any], root: Path) -> None:
    """Mask the secrets of settings, and the credentials of servers, from now on, wherever they appear in this process.

    Args:
        values: setting -> value, not yet checked.
        root: folder to which files of secrets are relative.
    """
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    config = values["spark_config"]
    config = {str(k): str(v) for k, v in config.items()} if isinstance(config, Mapping) else {}
    if "spark_config" in texts:
        config = {name.strip(): text for name, _, text in (p.partition("=") for p in texts["spark_config"].split(";"))}
    variables = {name: os.environ.get(name, "") for name in _SECRET_VARIABLES}
    addresses = (*texts.values(), *split_addresses(values["service"] or ()))
    remember_secrets(*addresses, values={**texts, **config, **variables})
    remember_named_secrets(values["notify"], root)


def remember_named_secrets(table: object, root: Path) -> None:
    """Mask the secrets that a table names by ``..._env`` or ``..._file``, also in tables within it.

    A missing variable or file is left to the code that needs it.

    Args:
        table: a table of settings, not yet checked.
        root: folder to which files of secrets are relative.
    """
    for secret in _named_secrets(table, root):
        remember_whole_secret(secret)


def _named_secrets(table: object, root: Path) -> Iterator[str]:
    for name, value in table.items() if isinstance(table, Mapping) else ():
        if isinstance(value, str) and str(name).endswith("_env"):
            yield os.environ.get(value, "").strip()
        elif isinstance(value, str) and str(name).endswith("_file"):
            yield _read_secret_file(root, value)
        else:
            yield from _named_secrets(value, root)


def _read_secret_file(root: Path, name: str) -> str:
    """Text of a file; empty if it cannot be read, or is too large for a secret."""
    try:
        path = root / Path(name).expanduser()
        is_secret = path.is_file() and path.stat().st_size <= _MAX_SECRET_BYTES
        return path.read_text(encoding="utf-8").strip() if is_secret else ""
    except (OSError, ValueError, RuntimeError):  # a damaged text, a NUL in the name, an unknown home
        return ""
