"""What the framework costs: executions against the same transformations by hand, in the same session.

    python -m benchmarks.overhead [--quick] [--json FILE]

By hand is what somebody would write who needs none of it: read the new files, call the same functions, write Parquet
with the same settings; no cursors, no commit, nothing checked. Pairs are interleaved; CPU is that of the JVM and of
Spark's Python workers, too.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import nova_assets as nova
from benchmarks import measure
from benchmarks.data import news_crawls, retail_lines
from nova_assets.engine.session.lazy_session import LazySparkSession
from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.engine.session.spark_config import WRITE_SETTINGS

LINES = 3_000_000
ROUNDS = 5


class Case:
    """One binding over what is on its channels now, run again and again from the same start.

    Args:
        by_hand: given the session, the new files and a folder, does the same.
    """

    def __init__(
        self, name: str, project: nova.Project, binding: str, spark: Any, by_hand: Callable[..., None]
    ) -> None:
        self.name = name
        self.project = project
        self.binding = binding
        self.spark = spark
        self.root = Path(tempfile.mkdtemp(prefix="overhead-"))
        self._by_hand = by_hand

    def open(self) -> nova.Store:
        return nova.open(self.project, f"sqlite:///{self.root}/now.db", self.root / "warehouse", self.spark)

    def prepare(self, fill: Callable[[nova.Store], None]) -> None:
        with self.open() as store:
            store.register(self.project)
            fill(store)
            self.files = {
                s.channel.name: [
                    str(self.root / "warehouse" / f.path)
                    for i in store.timeline(s.channel.name)
                    for b in i.blocks
                    for f in b.manifest.files
                ]
                for s in store.channels()
            }
        shutil.copy(self.root / "now.db", self.root / "start.db")

    def nova(self) -> None:
        with self.open() as store:
            done = store.run(self.binding)
        assert done.state == "committed"

    def by_hand(self) -> None:
        with temporary_settings(self.spark, WRITE_SETTINGS):
            self._by_hand(self.spark, self.files, str(self.root / "by-hand"))

    def rewind(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            (self.root / f"now.db{suffix}").unlink(missing_ok=True)
        shutil.copy(self.root / "start.db", self.root / "now.db")
        shutil.rmtree(self.root / "by-hand", ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


# retail: two outputs, one keyed, from the lines of many days

lines = nova.Channel(
    "lines", schema="invoice string, code string, quantity bigint, price double, country string, day date"
)
sold = nova.Channel("sold", merge=nova.Keyed(["day", "code"], {"pieces": "sum", "turnover": "sum"}))
clean = nova.Channel("clean")


@nova.task(consumes=nova.new(lines), produces=nova.delta(clean))
def clean_lines(lines: Any) -> Any:
    return lines.filter("quantity > 0 and price > 0").withColumn("turnover", lines["quantity"] * lines["price"])


@nova.task(consumes=nova.new(clean), produces=nova.delta(sold))
def sum_up(clean: Any) -> Any:
    return (
        clean.groupBy("day", "code")
        .agg({"quantity": "sum", "turnover": "sum"})
        .toDF("day", "code", "pieces", "turnover")
    )


def retail_by_hand(spark: Any, files: dict[str, list[str]], folder: str) -> None:
    given = spark.read.schema("invoice string, code string, quantity bigint, price double, country string, day date")
    clean_lines(given.parquet(*files["lines"])).write.parquet(f"{folder}/clean")
    made = spark.read.schema(
        "invoice string, code string, quantity bigint, price double, country string, day date, turnover double"
    )
    sum_up(made.parquet(f"{folder}/clean")).write.parquet(f"{folder}/sold")


def retail(spark: Any, rows: int) -> Case:
    project = nova.Project([nova.bind(nova.Workflowette("retail", [clean_lines, sum_up]))])
    case = Case(f"retail, {rows:,} lines", project, "retail", spark, retail_by_hand)
    case.prepare(lambda store: _insert(store, "lines", retail_lines(rows)))
    return case


# news: what the example's data trigger runs, over the last crawls, with the others seen


def news_by_hand(spark: Any, files: dict[str, list[str]], folder: str) -> None:
    from examples.news import pipeline as p

    def read(channel: nova.Channel, paths: list[str]) -> Any:
        from nova_assets.engine.rows.spark_types import to_struct

        assert channel.schema is not None
        return spark.read.schema(to_struct(channel.schema)).parquet(*paths)

    new = read(p.articles, files["articles"])
    p.tag_templates(new, read(p.site_templates, files["site_templates"])).write.parquet(f"{folder}/tagged")
    shingled = p.shingle(read(p.tagged_articles, [f"{folder}/tagged"])).cache()
    seen = spark.createDataFrame([], "hash string, url string, crawled_at timestamp")
    outputs = p.drop_seen(shingled, seen.join(shingled.select("hash").distinct(), "hash", "left_semi"))
    outputs["unique_articles"].write.parquet(f"{folder}/unique")
    outputs["seen"].write.parquet(f"{folder}/seen")
    shingled.unpersist()


def news(spark: Any, crawls: int) -> Case:
    from examples.news.pipeline import project

    def fill(store: nova.Store) -> None:
        for table in news_crawls(crawls):
            store.insert("articles", table)
        store.run("detect")

    case = Case(f"news, {crawls} crawls", project, "dedup", spark, news_by_hand)
    case.prepare(fill)
    return case


def _insert(store: nova.Store, channel: str, table: pa.Table) -> None:
    store.insert(channel, table)


def compare(case: Case, rounds: int) -> list[list[measure.Cost]]:
    def run() -> None:
        case.nova()

    costs: list[list[measure.Cost]] = [[], []]
    for n in range(rounds + 1):
        for which, work in ((0, run), (1, case.by_hand)) if n % 2 else ((1, case.by_hand), (0, run)):
            case.rewind()
            cost = measure.cost_of(work)
            if n:
                costs[which].append(cost)
    return costs


def main() -> None:
    given = measure.options("Executions against the same transformations by hand.")
    rounds, rows, crawls = (2, 300_000, 6) if given.quick else (ROUNDS, LINES, 24)
    spark = LazySparkSession().get()
    shown, figures = [], {}
    for case in (retail(spark, rows), news(spark, crawls)):
        ours, theirs = compare(case, rounds)
        a, b, r = measure.median(ours), measure.median(theirs), measure.ratio(ours, theirs)
        shown.append((case.name, a.wall, b.wall, r.wall, a.cpu, b.cpu, r.cpu))
        figures[case.name] = {"wall": a.wall, "by_hand": b.wall, "ratio": r.wall, "cpu": a.cpu, "cpu_ratio": r.cpu}
        case.close()
    columns = ("execution", "wall s", "by hand s", "ratio", "CPU s", "by hand CPU s", "CPU ratio")
    measure.show(f"Executions and the same by hand, medians of {rounds} interleaved pairs", columns, shown)
    measure.keep(given.json, figures)
    print("overhead: " + ", ".join(f"{s[0]}: {s[3]:.2f} x wall, {s[6]:.2f} x CPU" for s in shown))


if __name__ == "__main__":
    main()
