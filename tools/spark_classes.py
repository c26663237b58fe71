"""Archives the classes that Spark loads, so that the JVMs of the tests need half the time to start.

    python tools/spark_classes.py .venv/spark-classes.jsa

Java calls this application class-data sharing. A JVM with another version or other jars ignores the archive. Where Java
cannot write one, the file is empty, and the tests do without. `nova_assets_tests/conftest.py` uses the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from nova_assets.engine.rows.spark_versions import collect_to_arrow, frame_from_arrow
from nova_assets.engine.session.lazy_session import LazySparkSession

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STATEMENTS = (
    "SELECT v, count(*) n, sum(d) s, max(t) m FROM archived GROUP BY v ORDER BY n DESC LIMIT 3",
    "SELECT id, row_number() OVER (PARTITION BY v ORDER BY id) r FROM archived WHERE v LIKE 'a%' OR v IN ('b', 'c')",
    "SELECT DISTINCT a.id, upper(b.v), CAST(b.d AS string) FROM archived a LEFT JOIN archived b ON a.id = b.id",
    "SELECT * FROM archived a WHERE NOT EXISTS (SELECT 1 FROM archived b WHERE b.id > a.id) UNION ALL TABLE archived",
)


def main(file: Path) -> None:
    """Run statements of the usual kinds in a JVM that archives its classes when it ends."""
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:ArchiveClassesAtExit={new} -Xlog:disable"
    with tempfile.TemporaryDirectory() as folder:
        session = LazySparkSession().get()
        run_statements(session, folder)
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if new.is_file():
        new.replace(file)
    else:
        file.write_bytes(b"")
        print("This Java archives no classes. The tests that start Spark take longer.", file=sys.stderr)


def run_statements(session: Any, folder: str) -> None:
    """Load what reads, queries and writes of the engine load."""
    rows = pa.table({"id": [1, 2, 3], "v": ["a", "b", None], "d": [1.5, 2.5, None]})
    frame = frame_from_arrow(session, rows).selectExpr("*", "current_timestamp() AS t")
    frame.write.parquet(f"{folder}/rows")
    session.read.parquet(f"{folder}/rows").createOrReplaceTempView("archived")
    for statement in STATEMENTS:
        collect_to_arrow(session.sql(statement))
        session.sql(statement).collect()
    session.table("archived").mapInArrow(lambda batches: batches, "id long, v string, d double, t timestamp").count()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
