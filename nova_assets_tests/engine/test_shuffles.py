"""Parts of a shuffle in a real session: more for more data, never fewer than it has, and restored afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from nova_assets.engine.session.shared_settings import SHUFFLE_PARTITIONS, shuffle_partitions
from nova_assets.model.resources import Parallelism

pytestmark = pytest.mark.spark


@pytest.mark.core
def test_parts_are_raised_or_stated_and_restored(spark: Any) -> None:
    before = int(spark.conf.get(SHUFFLE_PARTITIONS))
    for wanted, is_stated, found in [
        (before + 9, False, before + 9),
        (1, False, before),
        (before, False, before),
        (before + 3, True, before + 3),
        (1, True, 1),
    ]:
        with shuffle_partitions(spark, Parallelism(None, wanted, is_stated, 0)):
            assert int(spark.conf.get(SHUFFLE_PARTITIONS)) == found
        assert int(spark.conf.get(SHUFFLE_PARTITIONS)) == before
