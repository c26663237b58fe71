"""What other tools read, while the channel changes, is exactly some commit's snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_assets_tests.effort import EXHAUSTIVE
from nova_assets_tests.publish.readers import READERS, watch


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("keyed", [pytest.param(False, marks=EXHAUSTIVE), True], ids=["append", "upsert"])
def test_every_read_is_some_commit(spark: Any, tmp_path: Path, keyed: bool) -> None:
    seen = watch(tmp_path, 20, keyed=keyed)
    assert seen.wrong == []
    assert set(seen.reads) == set(READERS), "each has read"
    assert seen.written >= 5 and len(seen.commits) >= 3, "and it did change meanwhile"
