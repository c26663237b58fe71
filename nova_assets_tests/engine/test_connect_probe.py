"""A server of Spark Connect that computes otherwise than Spark is refused before it computes anything (R22)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.engine.session.connect_probe import find_failed_probe
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.plan.engine_probe import OVERFLOW_QUERIES


class ForeignSession:
    """A client of a server whose sums wrap around."""

    version = "4.0.1"
    session_id = "s1"

    def __init__(self) -> None:
        self.settings = {"spark.sql.ansi.enabled": "false"}
        self.conf = SimpleNamespace(
            get=self.settings.get, set=self.settings.__setitem__, unset=lambda name: self.settings.pop(name, None)
        )
        self.client = SimpleNamespace(_builder=SimpleNamespace(endpoint="engine:15002"), host="engine")
        self.queries: list[tuple[str, str]] = []

    def sql(self, query: str) -> Any:
        self.queries.append((query, self.settings["spark.sql.ansi.enabled"]))
        return SimpleNamespace(collect=lambda: [(-(2**63),)])


ForeignSession.__module__ = "pyspark.sql.connect.session"


def test_a_server_whose_sums_wrap_around_is_refused_by_name() -> None:
    spark: Any = ForeignSession()
    session = LazySparkSession(spark)
    for _ in range(2):  # it does not become trusted
        with pytest.raises(nova.EngineUnavailable) as refused:
            session.get()
    assert str(refused.value).startswith(
        "[NOVA-ENGINE-UNAVAILABLE] the server sc://engine:15002 does not compute as Spark does: a SUM that overflows\n"
        "  found:    the value -9223372036854775808 (it calls itself Spark 4.0.1)\n"
        "  expected: an error: arithmetic overflow\n"
    )
    assert refused.value.probe == "a SUM that overflows"
    query = OVERFLOW_QUERIES["a SUM that overflows"]
    assert (query, "true") in spark.queries, "asked under the settings of nova"
    assert spark.settings["spark.sql.ansi.enabled"] == "false", "which are restored"


@pytest.mark.spark
def test_spark_passes_its_own_probes(spark: Any) -> None:
    assert find_failed_probe(spark) is None
