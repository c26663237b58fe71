"""Fixtures of a real Hive metastore."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from nova_assets_tests.conftest import missing
from nova_assets_tests.metastore import servers


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a metastore with a notification log."""
    try:
        with servers.server(tmp_path_factory.mktemp("metastore")) as address:
            yield address
    except servers.NoMetastore as reason:
        missing(f"no Hive metastore: {reason}", "Ivy must reach Maven Central, once")


@pytest.fixture
def name() -> str:
    """The name of a table that is this test's alone."""
    return f"t{uuid.uuid4().hex[:12]}"
