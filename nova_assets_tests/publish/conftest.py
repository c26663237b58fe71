"""Fixtures of published tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_assets_tests.publish.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)
