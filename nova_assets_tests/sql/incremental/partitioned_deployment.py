"""A store with datasets in SQL for each day, maintained from changes. Spark's own recompute decides what is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nova_assets as nova
from nova_assets_tests.sql.incremental.spark_recompute import create_views

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
DAY = nova.daily("day", start=DAYS[0])
CLICKS = nova.Channel("clicks", schema="id int, user int, n int, day string", partitions=[DAY])
ORDERS = nova.Channel(
    "orders",
    merge=nova.Upsert(key=["day", "id"]),
    schema="id int, user int, amount decimal(10,2), day string",
    partitions=[DAY],
)
USERS = nova.Channel("users", merge=nova.Upsert(key="uid"), schema="uid int, name string")
CALENDAR = nova.Channel("calendar", merge=nova.Upsert(key=["d", "day"]), schema="d string, day string, is_open boolean")
CHANNELS = [CLICKS, ORDERS, USERS, CALENDAR]

SERIES = "FOR t IN TIMESERIES('2024-01-01', '2024-01-04') LET d = DATE_FORMAT(t, 'yyyy-MM-dd')"
QUERIES = {
    "daily": "SELECT user, COUNT(*) AS n, SUM(amount) AS total FROM orders WHERE orders.day = :d GROUP BY user",
    "named": "SELECT o.id, u.name, :d AS shown FROM orders o LEFT JOIN users u ON o.user = u.uid WHERE o.day = :d",
    "recent": "SELECT user, SUM(n) AS n FROM clicks c "
    "WHERE c.day BETWEEN DATE_FORMAT(DATE_SUB(:t, 1), 'yyyy-MM-dd') AND :d GROUP BY user",
    "listed": "SELECT user, n FROM clicks c WHERE c.day IN (SELECT x.day FROM calendar x WHERE x.d = :d AND x.is_open)",
    "best": "SELECT user, total FROM daily WHERE day = :d AND total > 5",
    "bag": "SELECT user FROM clicks WHERE clicks.day = d UNION ALL SELECT user FROM orders o WHERE o.day = d",
    "share": "SELECT id, amount, SUM(amount) OVER (PARTITION BY user) AS of_user FROM orders o WHERE o.day = d",
    "mean": "SELECT user, AVG(n) AS mean, CAST(SUM(n) AS DOUBLE) / 3 AS third FROM clicks WHERE day = :d GROUP BY user",
}


class Deployment:
    """A store with datasets per day."""

    def __init__(self, spark: Any, root: Path, refresh: Any, names: list[str], *, replace: bool = False) -> None:
        self.spark, self.names = spark, names
        folder = root / "sql"
        folder.mkdir(exist_ok=True)
        for name in names:
            text = f"{SERIES}\nINSERT OVERWRITE {name} PARTITION (day = d)\n{QUERIES[name]}"
            (folder / f"{name}.sql").write_text(text)
        self.datasets = nova.datasets(folder, channels=CHANNELS, refresh=refresh)
        self.project = nova.Project(bindings=self.datasets, channels=CHANNELS)
        self.store = nova.open(self.project, f"sqlite:///{root}/catalog.db", root / "warehouse", spark)
        self.store.register(self.project, replace=replace)

    def tick(self) -> list[tuple[str, str]]:
        """Tick until nothing is to do. Returns the dataset, the day and the strategy of each execution."""
        computed: list[tuple[str, str]] = []
        for _ in range(12):
            tick = self.store.next_tick()
            if not tick.run:
                return computed
            tasks = [(batch.dataset, partition) for batch in tick.run for partition in batch.partitions]
            forecasts = {task: self.store.forecast(self.store.plan(*task)) for task in tasks}
            for outcome in self.store.tick(tick):
                assert outcome.error is None, outcome
                assert outcome.execution is not None
                facts = outcome.execution.tasks[0].facts.get("maintenance", {})
                for forecast in forecasts[outcome.dataset, outcome.partition]:
                    is_without_spark = "Spark" in facts["reason"]  # only the execution asks Spark
                    assert is_without_spark or forecast.choice.strategy == facts["strategy"], facts
                computed.append((f"{outcome.dataset} {outcome.partition[-2:]}", facts.get("strategy", "full")))
        raise AssertionError(f"ticks do not come to an end: {computed}")

    def check(self, *days: str) -> None:
        """Compare partitions with their queries over the inputs as they are."""
        create_views(self.spark, self.store, (*(c.name for c in CHANNELS), *self.names))
        for name in self.names:
            recomputed = self.spark.sql(" UNION ALL ".join(query_of_day(name, day) for day in days or DAYS))
            rows = self.store.read(name).to_arrow().select(recomputed.columns).to_pylist()
            stored = [text_of(r.values()) for r in rows if not days or r["day"] in days]
            assert sorted(stored) == sorted(map(text_of, recomputed.collect())), name

    def blocks(self, name: str, day: str) -> list[tuple[str, str]]:
        """Kind and origin of each block of a partition, oldest first."""
        found = [b for i in self.store.timeline(name) for b in i.blocks if b.partition == f"day={day}"]
        return [(b.kind, b.origin) for b in sorted(found, key=lambda b: b.hi)]


def query_of_day(name: str, day: str) -> str:
    """The query of a dataset for one day, with values in place of its variables."""
    sql = QUERIES[name].replace(" = d", " = :d").replace(":d", f"'{day}'")
    sql = sql.replace(":t", f"TIMESTAMP '{day} 00:00:00'")
    return f"SELECT *, '{day}' AS day FROM ({sql})"


def text_of(row: Any) -> str:
    """The values of a row. The order of additions may change the last digits of a rounded number."""
    return str([f"{value:.9g}" if isinstance(value, float) else value for value in row])


def click(id: int, user: int | None, day: str, n: int = 1) -> dict[str, Any]:
    return {"id": id, "user": user, "n": n, "day": day}


def order(id: int, user: int | None, day: str, amount: int = 1, *, deleted: bool = False) -> dict[str, Any]:
    return {"id": id, "user": user, "amount": amount, "day": day, "_deleted": deleted}


def listing(d: str, day: str, *, is_open: bool | None = True) -> dict[str, Any]:
    return {"d": d, "day": day, "is_open": is_open}
