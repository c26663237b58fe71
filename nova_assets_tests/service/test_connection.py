"""``nova.connect``: what a store answers, a connection answers; over a real server, with a real warehouse."""

from __future__ import annotations

import datetime as d
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.model.token import mint_token
from nova_assets.service import assembly
from nova_assets.service.http.asgi import LINES
from nova_assets.service.http.config import ServiceConfig
from nova_assets.service.routes.data import RowStream
from nova_assets.settings import load_settings
from nova_assets_tests import patient

pytestmark = pytest.mark.slow

ORDERS = nova.Channel(
    "orders", merge=nova.Upsert(key=["id", "on"]), schema="id bigint, on date, what string, price decimal(10,2)"
)
VISITS = nova.Channel(
    "visits",
    merge=nova.Append(),
    schema="dt date, region string, n bigint",
    partitions=[nova.daily("dt", start="2024-01-01"), nova.dynamic("region")],
)


def order_row(n: int, what: str = "tea", **more: Any) -> dict[str, Any]:
    return {"id": n, "on": d.date(2024, 1, 1 + n), "what": what, "price": Decimal("1.50"), **more}


def visit_row(day: int, region: str, n: int) -> dict[str, Any]:
    return {"dt": d.date(2024, 1, day), "region": region, "n": n}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    settings = replace(load_settings(start_folder=tmp_path), service="embedded")
    with nova.open(nova.Project(channels=[ORDERS, VISITS]), settings=settings) as store:
        store.register(store.project)
        yield store


@pytest.fixture
def url(store: nova.Store) -> Iterator[str]:
    config = ServiceConfig(port=0, max_body=4 * 2**20)
    with assembly.build_server(assembly.build_service(store, config)).in_background() as url:
        yield url


@pytest.fixture
def connection(url: str) -> Iterator[nova.Connection]:
    with nova.connect(url) as connection:
        yield connection


def sorted_row_texts(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def assert_same_rows(connection: nova.Connection, store: nova.Store, channel: str, **what: Any) -> int:
    remote_rows, local_rows = connection.read(channel, **what).to_arrow(), store.read(channel, **what).to_arrow()
    assert (
        sorted_row_texts(remote_rows) == sorted_row_texts(local_rows)
        and remote_rows.schema.names == local_rows.schema.names
    )
    return int(remote_rows.num_rows)


def releases_all_pins(store: nova.Store) -> bool:
    """Whether all pins are let go of, in a moment."""
    until = time.monotonic() + 5
    while time.monotonic() < until and store.catalog.executions.running():
        time.sleep(0.05)
    return store.catalog.executions.running() == []


def test_what_is_put_in_is_read_back(connection: nova.Connection, store: nova.Store, tmp_path: Path) -> None:
    """Rows in every form that is taken, as they were, in the channel's types."""
    first = connection.insert("orders", [order_row(1), order_row(2)])
    assert (first.seq, first.repeated) == (1, False) and first.blocks[0].range == "Δ(0→1)"
    table = store.read("orders").to_arrow()
    connection.insert("orders", table.slice(0, 1).set_column(2, "what", pa.array(["mate"])))
    connection.insert("orders", table.to_pandas().assign(what="cocoa").tail(1))
    pq.write_table(pa.Table.from_pylist([order_row(3)], schema=table.schema), tmp_path / "more.parquet")
    connection.insert("orders", tmp_path / "more.parquet")
    (tmp_path / "more.jsonl").write_text('{"id": 4, "on": "2024-01-05", "what": "milk", "price": "2.25"}\n')
    connection.insert("orders", str(tmp_path / "more.jsonl"))
    connection.insert("orders", [order_row(1, _deleted=True)])
    assert {r["id"]: r["what"] for r in store.read("orders").to_arrow().to_pylist()} == {
        2: "cocoa",
        3: "tea",
        4: "milk",
    }
    assert assert_same_rows(connection, store, "orders") == 3
    assert assert_same_rows(connection, store, "orders", at=1) == 2
    assert assert_same_rows(connection, store, "orders", since=3) == 3
    assert assert_same_rows(connection, store, "orders", since=1, at=2) == 1
    assert assert_same_rows(connection, store, "orders", columns=["what", "id"]) == 3
    assert (
        assert_same_rows(connection, store, "orders", keys=pa.table({"id": [2, 9], "on": [d.date(2024, 1, 3)] * 2}))
        == 1
    )


def test_partitions(connection: nova.Connection, store: nova.Store) -> None:
    connection.insert("visits", [visit_row(1, "eu", 1), visit_row(2, "eu", 2), visit_row(2, "us", 3)])
    connection.insert("visits", [{"n": 4, "region": "us"}], partition={"dt": d.date(2024, 1, 3)})
    assert assert_same_rows(connection, store, "visits", partition={"dt": d.date(2024, 1, 2)}) == 2
    assert assert_same_rows(connection, store, "visits", partition="region=us") == 2
    assert connection.partitions("visits") == store.partitions("visits")
    assert connection.drop("visits", "dt=2024-01-02") is not None
    assert assert_same_rows(connection, store, "visits") == 2
    with pytest.raises(nova.PartitionError):
        connection.read("visits", partition="dt=yesterday").to_arrow()


@pytest.mark.core
def test_upkeep(connection: nova.Connection, store: nova.Store) -> None:
    for n in range(4):
        connection.insert("orders", [order_row(1, f"v{n}"), order_row(2 + n)])
    assert connection.compactable("orders") == store.compactable("orders") != ()
    assert connection.compact("orders") is not None and connection.compact("orders") is None
    taken = connection.collect_garbage("orders")
    assert {b.range for b in taken.blocks} == {"Δ(0→1)", "Δ(1→2)", "Δ(2→3)", "Δ(3→4)"}
    assert connection.timeline("orders") == store.timeline("orders")
    assert [i.action for i in connection.timeline("orders")] == ["commit"] * 4 + ["compact", "collect"]
    with pytest.raises(nova.BlockCollected):
        connection.read("orders", at=2).to_arrow()


def test_some_partitions_are_compacted(connection: nova.Connection, store: nova.Store) -> None:
    for n in (1, 2):
        connection.insert("visits", [visit_row(1, "eu", n), visit_row(1, "us", n)])
    europe = ["dt=2024-01-01/region=eu"]
    planned = connection.compactable("visits", partitions=europe)
    assert planned == store.compactable("visits", partitions=europe) and len(planned) == 1
    compacted = connection.compact("visits", partitions=europe)
    assert compacted is not None and [b.partition for b in compacted.blocks] == europe
    assert len(store.compactable("visits")) == 1


@pytest.mark.spark
def test_a_version_is_restored(connection: nova.Connection, store: nova.Store) -> None:
    connection.insert("orders", [order_row(1)])
    connection.insert("orders", [order_row(2)])
    assert connection.restore("orders", 1).seq == 3
    assert assert_same_rows(connection, store, "orders") == 1


def test_looking(connection: nova.Connection, store: nova.Store) -> None:
    connection.insert("visits", [visit_row(1, "eu", 1)])
    assert connection.channels() == store.channels()
    assert connection.channel("visits").head == 1
    assert connection.cursors() == store.cursors() == []
    assert connection.executions() == store.executions() == []
    assert connection.firings() == []
    assert connection.check_insert("visits", [visit_row(1, "eu", 1)]) == store.check_insert(
        "visits", [visit_row(1, "eu", 1)]
    )


def test_errors_are_those_of_the_store(connection: nova.Connection) -> None:
    with pytest.raises(nova.ChannelNotFound):
        connection.read("nope").to_arrow()
    with pytest.raises(nova.VersionNotFound):
        connection.read("orders", at=7).to_arrow()
    with pytest.raises(nova.SchemaMismatch):
        connection.insert("orders", pa.table({"id": ["one"]}))
    with pytest.raises(nova.BadKey):
        connection.insert("orders", [order_row(1), order_row(1, "mate")])
    with pytest.raises(nova.NovaError) as refused:
        connection.insert("orders", pa.table({"id": pa.array(range(10**6))}))
    assert refused.value.fields["status"] == 413
    assert connection.channel("orders").head == 0


def test_the_same_key_is_one_insert(connection: nova.Connection, store: nova.Store) -> None:
    first = connection.insert("orders", [order_row(1)], idempotency_key="monday")
    again = connection.insert("orders", [order_row(1)], idempotency_key="monday")
    assert again.repeated and again.id == first.id and store.catalog.definitions.channel("orders").head == 1
    with pytest.raises(nova.NovaError, match="'monday' of channel 'orders' was used for other rows") as refused:
        connection.insert("orders", [order_row(2)], idempotency_key="monday")
    assert refused.value.code == "NOVA-IDEMPOTENCY-CONFLICT" and store.catalog.definitions.channel("orders").head == 1


def test_a_read_is_pinned_until_it_is_sent(
    connection: nova.Connection, store: nova.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is compacted and collected meanwhile, the rows are those of the moment it began."""
    for n in range(5):
        store.insert("orders", [order_row(n, "old")])
    sent = RowStream.body

    async def slowly(self: RowStream) -> Any:
        store.insert("orders", [order_row(n, "new") for n in range(5)])
        store.compact("orders")
        collected = {b.range for b in store.collect_garbage("orders").blocks}
        assert not collected & {"Δ(0→1)", "Δ(4→5)"}, "what is being read stays"
        async for part in sent(self):
            yield part

    monkeypatch.setattr(RowStream, "body", slowly)
    assert {r["what"] for r in connection.read("orders").to_arrow().to_pylist()} == {"old"}
    monkeypatch.setattr(RowStream, "body", sent)
    assert releases_all_pins(store), "and the pin is let go of"
    assert store.collect_garbage("orders").blocks


def test_who_leaves_in_the_middle_holds_nothing(url: str, store: nova.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        store.insert("visits", [visit_row(1, "eu", n)])
    with httpx.stream("GET", f"{url}/v1/channels/visits/data") as response:
        next(response.iter_raw(10))
    assert releases_all_pins(store)


def test_rows_that_end_too_early_are_no_answer(connection: nova.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.insert("visits", [visit_row(1, "eu", 1)])

    async def cut(self: RowStream) -> Any:
        yield self._first[:-8]

    monkeypatch.setattr(RowStream, "body", cut)
    with pytest.raises(nova.ServiceUnavailable, match="ended before the last row"):
        connection.read("visits").to_arrow()


def test_batches_as_they_come(connection: nova.Connection, store: nova.Store) -> None:
    for day in range(1, 6):
        store.insert("visits", [visit_row(day, "eu", n) for n in range(10)])
    with connection.read("visits").batches() as reader:
        assert sum(batch.num_rows for batch in reader) == 50


def test_what_the_views_tell(url: str, store: nova.Store) -> None:
    """Files, changes, instants, touched partitions; what is pending; schemas and blocks."""

    def get(path: str, **parameters: Any) -> Any:
        answer = patient.get(f"{url}/v1/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    store.insert("visits", [visit_row(1, "eu", 1), visit_row(2, "us", 2)])
    store.insert("visits", [visit_row(2, "us", 3)])
    listed = {f.path for b in store.catalog.histories.of("visits").blocks for f in b.manifest.files}
    told = get("channels/visits/files")
    assert {f["path"] for b in told["blocks"] for f in b["files"]} == listed and told["at"] == 2
    first = get("channels/visits/files", at=1)
    assert {b["block"]["hi"] for b in first["blocks"]} == {1}
    one = get("channels/visits/files", partition="region=us")
    assert [b["block"]["partition"] for b in one["blocks"]] == ["dt=2024-01-02/region=us"] * 2
    [part] = get("channels/visits/changes", since=1)["parts"]
    assert part["how"] == "chain" and [b["block"]["lo"] for b in part["new"]] == [1]
    instants = get("channels/visits/instants", after=1)
    assert [(i["action"], i["seq"]) for i in instants["instants"]] == [("commit", 2)] and instants["behind"] == 1
    known = get("channels/visits")["position"]
    assert get("channels/visits/instants", known=known)["behind"] == 0
    assert get("channels/visits/touched", after=1)["partitions"] == ["dt=2024-01-02/region=us"]
    assert [c["name"] for c in get("channels/visits/schema")["columns"]] == ["dt", "region", "n"]
    assert len(get("channels/visits/blocks")) == 3
    assert get("channels/visits/upkeep")["collect"] == []
    execution = store.runtime.channel_writer.begin("visits", purpose="compact")
    pending = get("channels/visits/pending")
    assert [e["id"] for e in pending["compactions"]] == [execution.id] and pending["executions"] == []
    forged = patient.get(f"{url}/v1/channels/visits/files", params={"known": f"2-{'0' * 64}"})
    assert forged.status_code == 409 and forged.json()["code"] == "NOVA-TIMELINE-DIFFERS"
    assert patient.get(f"{url}/readyz").json() == {"status": "ready"}
    assert "nova_views_applied" in patient.get(f"{url}/metrics").text


def test_little_is_loaded_for_little(store: nova.Store) -> None:
    """Inserts, changes, one partition and the schema take no view of the whole channel."""
    for day in range(1, 6):
        store.insert("visits", [visit_row(day, region, day) for region in ("eu", "us")])
    with nova.open(store.project, settings=store.settings) as begun:
        served = assembly.build_service(begun, ServiceConfig(port=0))
        with assembly.build_server(served).in_background() as url, nova.connect(url) as connection:
            connection.insert("visits", [visit_row(6, "eu", 6)])
            assert connection.read("visits", since=4).to_arrow().num_rows == 3
            for what in ("schema", "schema?at=2", "changes?since=3", "blocks?limit=1", "timeline?limit=1"):
                assert patient.get(f"{url}/v1/channels/visits/{what}").status_code == 200
            assert served.query_handler.follower.counts.loaded == 0
            assert connection.read("visits", partition="dt=2024-01-01/region=eu").to_arrow().num_rows == 1
            assert served.query_handler.follower.counts.loaded == 1


def test_who_may_operate_a_channel_does_not_read_it(url: str, store: nova.Store) -> None:
    """What was compacted and collected is told by number and size: no columns, no keys, no paths."""
    for n in range(2):
        store.insert("orders", [order_row(7, f"secret-{n}")])
    text, token = mint_token("janitor", {"operate": ("orders",)}, store.catalog.now())
    store.catalog.tokens.add(token)
    with assembly.serve_in_background(store, ServiceConfig(port=0, auth="tokens")) as service_url:
        headers = {"Authorization": f"Bearer {text}"}
        for what in ("compact", "collect"):
            for body in ({"dry_run": True}, {}):
                answer = patient.post(f"{service_url}/v1/channels/orders/{what}", json=body, headers=headers)
                assert answer.status_code == 200
                assert [word for word in WORDS if word in _replace_times(answer.text)] == []
        assert patient.get(f"{service_url}/v1/channels/orders/files", headers=headers).status_code == 403


def test_lines_without_the_columns_that_the_partition_names(url: str, store: nova.Store) -> None:
    """As the error of rows that lack them advises."""
    asked = {"url": f"{url}/v1/channels/visits/blocks", "content": b'{"n": 7}\n', "headers": {"content-type": LINES}}
    refused = patient.post(**asked)
    assert refused.status_code == 422 and "name the partition" in refused.json()["next"], refused.text
    taken = patient.post(**asked, params={"partition": "dt=2024-01-03/region=eu"})
    assert taken.status_code == 200, taken.text
    assert store.read("visits").to_arrow().to_pylist() == [visit_row(3, "eu", 7)]


def test_a_channel_of_the_project_is_registered_by_its_first_insert(tmp_path: Path) -> None:
    settings = replace(load_settings(start_folder=tmp_path), service="embedded")
    with (
        nova.open(nova.Project(channels=[ORDERS, VISITS]), settings=settings) as store,
        assembly.serve_in_background(store) as url,
        nova.connect(url) as connection,
    ):
        connection.insert("visits", [visit_row(1, "eu", 1)])
        connection.insert("orders", pa.Table.from_pylist([order_row(1)]))
        assert [connection.read(c).to_arrow().num_rows for c in ("visits", "orders")] == [1, 1]
        with pytest.raises(nova.ChannelNotFound):
            connection.insert("nowhere", pa.table({"n": [1]}))


def test_how_a_channel_stands(connection: nova.Connection, store: nova.Store) -> None:
    """One alone is told as it is among all."""
    connection.insert("visits", [visit_row(1, "eu", 1)])
    for state in connection.channels():
        assert connection.channel(state.channel.name) == state
    assert connection.channel("visits").updated_at is not None


def test_an_instant_that_has_not_been_yet(connection: nova.Connection, url: str) -> None:
    connection.insert("visits", [visit_row(1, "eu", 1)])
    for what in ("instants", "touched"):
        assert patient.get(f"{url}/v1/channels/visits/{what}?after=1").status_code == 200
        told = patient.get(f"{url}/v1/channels/visits/{what}?after=99")
        assert told.status_code == 409 and "no instant 99" in told.json()["detail"], told.text


@pytest.mark.core
@pytest.mark.parametrize("url", ["localhost:8765", "http://127.0.0.1:abc", "ftp://127.0.0.1", ""])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(nova.SettingsError, match="is not an address"):
        nova.connect(url)


def test_who_may_only_write_puts_rows_in(store: nova.Store) -> None:
    """The service, which knows the columns, parses what rows say."""
    text, token = mint_token("loader", {"write": ("visits",)}, store.catalog.now())
    store.catalog.tokens.add(token)
    served = assembly.build_service(store, ServiceConfig(port=0, auth="tokens"))
    with assembly.build_server(served).in_background() as url, nova.connect(url, text) as connection:
        connection.insert("visits", [visit_row(1, "eu", 1), {"dt": "2024-01-02", "region": "us", "n": 2}])
        with pytest.raises(nova.NotAllowed):
            connection.read("visits").to_arrow()
    assert sorted_row_texts(store.read("visits").to_arrow()) == sorted_row_texts(
        pa.Table.from_pylist([visit_row(1, "eu", 1), visit_row(2, "us", 2)])
    )


WORDS = ("price", "secret", "parquet", "2024")


def _replace_times(text: str) -> str:
    """Without moments, and the format's name."""
    return re.sub(r'"(at|format)":"[^"]*"', "", text)


def test_rows_that_are_not_read_hold_nothing_for_ever(
    connection: nova.Connection, store: nova.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 4):
        connection.insert("visits", [visit_row(day, "eu", day)])
    real = RowStream.__init__

    def at_once(self: RowStream, opened: Any, compression: Any, seconds: float) -> None:
        assert seconds == 3600.0
        real(self, opened, compression, -1.0)

    monkeypatch.setattr(RowStream, "__init__", at_once)
    with pytest.raises(nova.ServiceUnavailable):
        connection.read("visits").to_arrow()
    assert releases_all_pins(store)
