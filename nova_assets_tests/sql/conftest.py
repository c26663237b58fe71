"""Spark settings of the tests of SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets_tests.effort import EVERYTHING

SETTINGS_FOR_A_FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
"""Spark distributes less. It generates code as it does for users."""


@pytest.fixture(autouse=True, scope="module")
def spark_for_a_few_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Spark plan for a few rows in modules that use the shared session. ``make test-all`` keeps the defaults."""
    items = [item for item in request.session.items if item.path == request.path]
    if EVERYTHING or not any("spark" in getattr(item, "fixturenames", ()) for item in items):
        yield
        return
    with temporary_settings(request.getfixturevalue("spark"), SETTINGS_FOR_A_FEW_ROWS):
        yield
