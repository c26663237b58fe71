"""Small deployments behind the whole service, with a real catalog, files and tokens. Nothing starts Spark."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

import nova_assets as nova
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.errors import EngineUnavailable, TaskFailed
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.viewed_catalog import catalog_through_views
from nova_assets.model.token import Grants, mint_token
from nova_assets.service.assembly import build_server, build_service
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.service_state import ServiceState
from nova_assets.settings import load_settings
from nova_assets.store.store import Store

STOCK = nova.Channel("stock", merge=nova.Upsert(key="sku"), schema="sku bigint, name string, price double")
EVENTS = nova.Channel(
    "events",
    merge=nova.Append(),
    schema="dt date, site string, n bigint",
    partitions=[nova.daily("dt", start="2024-01-01", tz="UTC"), nova.dynamic("site")],
)
LATER = nova.Channel("later", merge=nova.Append())
TOTALS = nova.Channel("totals", merge=nova.Upsert(key="sku"), schema="sku bigint, price double")

# All that a token for other channels must learn nothing of has one of these words in it.
HIDDEN_WORDS = ("quokka", "wombat", "numbat")
LEDGER = nova.Channel(
    "quokka_ledger",
    merge=nova.Upsert(key=["sku", "wombat_site"]),
    schema="sku bigint, wombat_site string, wombat_name string",
    partitions=[nova.dynamic("wombat_site")],
)
REPORT = nova.Channel("quokka_report", merge=nova.Append(), schema="sku bigint, wombat_name string")
WRECK = nova.Channel("quokka_wreck", merge=nova.Append())

CHANNELS = {c.name: c for c in (STOCK, EVENTS, LATER, TOTALS, LEDGER, REPORT, WRECK)}
HIDDEN = ("quokka_ledger", "quokka_report", "quokka_wreck")


@nova.task(consumes=nova.new(STOCK), produces=nova.delta(TOTALS))
def add_up(stock: Any) -> Any:
    return stock.select(["sku", "price"])


@nova.task(consumes=[nova.new(LEDGER), nova.all(STOCK)], produces=nova.delta(REPORT))
def numbat_report(quokka_ledger: Any, stock: Any) -> Any:
    return quokka_ledger.select(["sku", "wombat_name"])


@nova.task(consumes=nova.all(LEDGER), produces=nova.base(WRECK))
def numbat_fails(quokka_ledger: Any) -> Any:
    raise ValueError("the numbat has no wombat in /srv/secret/place, nor at postgresql://ann:hunter2@db.internal/nova")


SUMS = nova.bind(nova.Workflowette("sums", [add_up]), when=nova.on_data("stock"))
NIGHTLY = nova.bind(nova.Workflowette("numbat_nightly", [numbat_report]), when=nova.on_data("quokka_ledger"))
FAILING = nova.bind(nova.Workflowette("numbat_failing", [numbat_fails]))
PROJECT = nova.Project(bindings=[SUMS, NIGHTLY, FAILING])


class ArrowEngine(SparkEngine):
    """Engine without Spark, whose tasks get Arrow tables."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__(warehouse, no_spark)
        self.reader.read = self._read  # type: ignore[method-assign]

    def _read(self, read: Any) -> Any:
        table = self.reader.read_without_spark(read)
        return no_spark() if table is None else table

    def task_computation_scope(self, job_name: str, function: Any, on_progress: Any, parallelism: Any = None) -> Any:
        return nullcontext()


def no_spark() -> Any:
    raise EngineUnavailable("these tests start no Spark")


@dataclass
class Deployment:
    """A store and the folder of its files."""

    folder: Path
    store: Store

    def add_token_header(self, name: str, **grants: tuple[str, ...]) -> dict[str, str]:
        """Add a token to the catalog. Returns the header with which a caller presents it."""
        given: Grants = grants  # type: ignore[assignment]
        text, token = mint_token(name, given, self.store.catalog.now())
        self.store.catalog.tokens.add(token)
        return {"authorization": f"Bearer {text}"}

    def channel_contents(self, *channels: str) -> Mapping[str, Any]:
        """State, timeline, partitions, cursors and file digests of each channel."""
        return {name: self._channel_content(name) for name in channels}

    def _channel_content(self, channel: str) -> Any:
        catalog = self.store.catalog
        with suppress(nova.ChannelNotFound):
            blocks = catalog.histories.of(channel).blocks
            files = {f.path: _digest(self.folder / "wh" / f.path) for b in blocks for f in b.manifest.files}
            cursors = [c for c in catalog.cursors.find() if c.channel == channel]
            return (
                catalog.definitions.channel(channel),
                catalog.instants.of(channel),
                catalog.histories.partitions(channel),
                cursors,
                files,
            )
        return None

    def file_digests(self) -> dict[str, str]:
        """Digest of every file in the warehouse."""
        root = self.folder / "wh"
        return {str(p.relative_to(root)): _digest(p) for p in sorted(root.rglob("*")) if p.is_file()}

    def unfinished_executions(self) -> list[str]:
        """Executions that run or have left staged blocks."""
        return [
            f"{e.purpose} {e.state} {len(blocks)} blocks"
            for e, blocks in self.store.catalog.staging.executions_with_blocks()
        ]

    def hidden_texts(self, *channels: str) -> set[str]:
        """Texts that reveal these channels or locations on the server, which others must not see."""
        catalog = self.store.catalog
        found = {str(self.folder), "catalog.db", *HIDDEN_WORDS}
        for channel in channels:
            for block in catalog.histories.of(channel).blocks:
                found |= {block.id, block.commit_id, *(f.path for f in block.manifest.files)}
            found |= {i.commit_id for i in catalog.instants.of(channel)}
            found.add(catalog.definitions.channel(channel).position.prefix)
        found |= {e.id for e in catalog.executions.find(limit=1000) if set(e.pins) & set(channels)}
        found |= {f.id for f in catalog.firings.find(limit=1000) if f.binding.startswith("numbat")}
        return found - {""}


@dataclass
class ServedDeployment(Deployment):
    """A deployment and the address of its service."""

    service: ServiceState
    url: str


@contextmanager
def open_deployment(folder: Path) -> Iterator[Deployment]:
    """Open a deployment that has some history."""
    url, warehouse = f"sqlite:///{folder}/catalog.db", folder / "wh"
    settings = load_settings(start_folder=folder, catalog=url, warehouse=str(warehouse))
    truth = open_catalog(url)
    seen = catalog_through_views(truth, ViewQueryHandler(TimelineFollower(truth, MemoryStorage())))
    with Store(settings, PROJECT, seen, ArrowEngine(warehouse)) as store:
        _write_history(store)
        yield Deployment(folder, store)


@contextmanager
def serve_deployment(folder: Path, **config: Any) -> Iterator[ServedDeployment]:
    """Open such a deployment and serve it on a free port of this machine.

    Args:
        config: fields of the service's configuration that differ from the defaults.
    """
    with open_deployment(folder) as made:
        service = build_service(made.store, ServiceConfig(**{"port": 0, **config}))
        with build_server(service).in_background() as address:
            yield ServedDeployment(folder, made.store, service, address)


def sample_rows(channel: str, *numbers: int, site: str = "a") -> pa.Table:
    """Rows that fit a channel, one for each number."""
    sku = [n % 7 for n in numbers]
    if channel == "events":
        dates = [date(2024, 1, 1 + n % 3) for n in numbers]
        return pa.table({"dt": pa.array(dates, pa.date32()), "site": [site] * len(sku), "n": list(numbers)})
    if channel == "quokka_ledger":
        names = [f"wombat-{n}" for n in numbers]
        return pa.table({"sku": sku, "wombat_site": [f"numbat_{site}"] * len(sku), "wombat_name": names})
    return pa.table({"sku": sku, "name": [f"name {n}" for n in numbers], "price": [n / 2 for n in numbers]})


def encode_arrow_stream(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _write_history(store: Store) -> None:
    """Write inserts, a deletion, firings, successful executions and a failed one."""
    store.register(PROJECT)
    store.register(list(CHANNELS.values()))
    for n in (1, 3, 5):
        store.insert("stock", sample_rows("stock", n, n + 1))
        store.insert("events", sample_rows("events", n, n + 1))
        store.insert("quokka_ledger", sample_rows("quokka_ledger", n, n + 1))
    store.insert("stock", [{"sku": 3, "_deleted": True}])
    catalog = store.catalog
    for binding in ("sums", "numbat_nightly"):
        fired = catalog.firings.record(
            binding, 0, {binding: 1}, why="the numbat came" if "numbat" in binding else "data came"
        )
        assert fired is not None
        done = store.runtime.run(binding, firing_id=fired.id)
        assert done.state == "committed", done
        catalog.firings.record(binding, 1, {binding: 2})
    with suppress(TaskFailed):
        store.run("numbat_failing")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "gone"
