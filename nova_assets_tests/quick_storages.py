"""Dagster's SQLite storages in a test process: their migrations are read once.

Dagster compares the revision of a storage with its newest migration whenever it opens one. It reads a hundred files for
that, in a twentieth of a second, and opens several storages for each evaluation of a sensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

_scripts_by_location: dict[str, ScriptDirectory] = {}


@contextmanager
def quick_storages() -> Iterator[None]:
    """While the block lasts, this process keeps the migrations of Dagster's storages that it has read."""
    read = ScriptDirectory.from_config

    def read_once(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location") or ""
        if "dagster" not in location:
            return read(config)
        if location not in _scripts_by_location:
            _scripts_by_location[location] = read(config)
        return _scripts_by_location[location]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", read_once)
        yield
