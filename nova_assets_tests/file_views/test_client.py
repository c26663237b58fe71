"""A service that is killed, slow or wrong costs a moment: what is answered is right, the counter tells, and it is asked
again."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets import http_addresses
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.file_views import query_handler as desk_of_views
from nova_assets.file_views.client import ViewServiceClient
from nova_assets.file_views.file_lists import Pinned, Views
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.viewed_catalog import catalog_through_views
from nova_assets.plan import modes
from nova_assets.service.assembly import serve_views_in_background
from nova_assets.settings import load_settings
from nova_assets.store.store import Store
from nova_assets_tests.effort import examples
from nova_assets_tests.file_views.conftest import put
from nova_assets_tests.service.faulty_proxy import FaultyProxy, run_faulty_proxy

pytestmark = pytest.mark.slow

FAULTS = {
    "dead": "unreachable",
    "slow": "slow",
    "dripping": "slow",
    "stale": "wrong",
    "wrong hash": "wrong",
    "other catalog": "wrong",
    "garbage": "wrong",
    "busy": "busy",
    "failing": "failing",
    "cut": "unreachable",
}
"""How a service goes wrong -> what is counted."""

PATIENCE = {"slow": 0.2, "dripping": 0.7}
"""Seconds that an answer may take while the service is slow. A drop comes every 0.3 s: each is in time, all are not."""

PAUSE, LONGEST_PAUSE = 0.1, 0.2
"""Seconds for which a service that failed is not asked, before a random change by a fifth."""

AFTER_THE_PAUSE = 0.3
"""Seconds after which a service that failed is asked again."""


@pytest.fixture
def service(store: Store) -> Iterator[tuple[FaultyProxy, str]]:
    """A service of the store's views that can be made to go wrong, and a token for it."""
    put(store, 0)
    desk = ViewQueryHandler(TimelineFollower(store.catalog, MemoryStorage()))
    with serve_views_in_background(store, desk) as (url, token), run_faulty_proxy(url) as before:
        yield before, token


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is asked again after a moment."""
    monkeypatch.setattr(http_addresses, "PAUSE", PAUSE)
    monkeypatch.setattr(http_addresses, "LONGEST_PAUSE", LONGEST_PAUSE)


@contextmanager
def faulty_for(service: FaultyProxy, client: ViewServiceClient, fault: str) -> Iterator[None]:
    """The service fails while the block lasts, and is well again after it. The client waits less for a slow one.

    Right answers get more time, which they need on a busy machine.
    """
    patience = client.timeout_seconds
    service.set_fault(fault)
    _set_patience(client, PATIENCE.get(fault, patience))
    yield
    service.set_fault("well")
    _set_patience(client, patience)
    time.sleep(AFTER_THE_PAUSE)


def _set_patience(client: ViewServiceClient, seconds: float) -> None:
    if seconds != client.timeout_seconds:
        client.timeout_seconds = seconds
        client.close()  # the next question opens a connection with this timeout


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_answered_is_right_whatever_the_service_does(
    store: Store, service: tuple[FaultyProxy, str], fault: str
) -> None:
    before, token = service
    client = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    seen = catalog_through_views(store.catalog, client)

    def right() -> bool:
        return (
            seen.histories.of("t").blocks == store.catalog.histories.of("t").blocks
            and len(seen.histories.of("t", 1).blocks) == 3
        )

    assert right() and client.counts.fell_back == {} and client.counts.served == 2
    put(store, 1)
    with faulty_for(before, client, fault):
        for k in range(2, 8):
            put(store, k)
            assert right()
        assert client.counts.served == 2
        assert client.counts.fell_back[FAULTS[fault]] >= 1
    assert right() and client.counts.served == 4, "it is asked again, and answers"
    asked = before.request_count
    assert right() and before.request_count == asked + 2, "and from then on each time"


@pytest.mark.long
def test_client_stuck_on_its_fallback(store: Store, service: tuple[FaultyProxy, str]) -> None:
    """However often it failed, and however long, it is asked again within the longest pause."""
    before, token = service
    client = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    seen = catalog_through_views(store.catalog, client)
    for how in ("dead", "garbage", "busy", "dead") * examples(1, 2):
        before.set_fault(how)
        until = time.monotonic() + 2 * AFTER_THE_PAUSE
        while time.monotonic() < until:
            seen.histories.of("t")
            time.sleep(0.05)
        before.set_fault("well")
        until, counted = time.monotonic() + 10, client.counts.served
        while client.counts.served == counted and time.monotonic() < until:
            seen.histories.of("t")
            time.sleep(0.05)
        assert client.counts.served > counted, how
    asked = before.request_count
    before.set_fault("dead")
    for _ in range(200):
        seen.histories.of("t")
    assert before.request_count == asked, "nor is it asked at every turn"


def test_a_fixed_port_taken(store: Store) -> None:
    """A service beside a job takes a port that is free: two jobs on one machine are two services."""
    desks = [ViewQueryHandler(TimelineFollower(store.catalog, MemoryStorage())) for _ in range(2)]
    with serve_views_in_background(store, desks[0]) as (one, _), serve_views_in_background(store, desks[1]) as (two, _):
        assert one != two


@pytest.mark.core
def test_what_a_commit_has_been_answered_by_is_kept_beside_it(store: Store, service: tuple[FaultyProxy, str]) -> None:
    before, token = service
    store.runtime.channel_writer.catalog = store._inserter.catalog = seen = catalog_through_views(
        store.catalog,
        ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get()),
    )
    put(store, 1)
    assert seen.instants.of("t")[-1].details["views"]["served"] > 0
    before.set_fault("dead")
    put(store, 2)
    told = seen.instants.of("t")[-1].details["views"]
    assert told["unreachable"] >= 1 and "served" not in told


def views(store: Store, url: str, folder: Path, client: ViewServiceClient | None) -> Views:
    state = store.catalog.definitions.channel("t")
    opener: Any = partial(open_catalog, url)
    return Views(str(folder / "wh"), opener, client, {"t": Pinned(state.head, state.position)})


@pytest.mark.parametrize("fault", FAULTS)
def test_files_of_a_partition_in_another_process(
    store: Store, url: str, tmp_path: Path, service: tuple[FaultyProxy, str], fault: str
) -> None:
    """As a worker of Spark asks: what was sent along makes its own connections, and its own view where it has to."""
    before, token = service
    put(store, 1)
    client = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    sent: Views = pickle.loads(pickle.dumps(views(store, url, tmp_path, client)))
    put(store, 2)  # later than what was pinned
    right = [f for b in store.catalog.histories.of("t", 2, "p=b").blocks for f in b.manifest.files]
    assert [f.path for f in sent.files("t", "p=b")] == [str(tmp_path / "wh" / f.path) for f in right]
    assert sent.counts.served == 1
    before.first_body_by_path = {
        path: before.first_body_by_path[path].replace(b'"at":2', b'"at":1') for path in before.first_body_by_path
    }
    assert sent._client is not None
    with faulty_for(before, sent._client, fault):
        assert [f.rows for f in sent.files("t", "p=b")] == [f.rows for f in right]
        assert [f.lo for f in sent.files("t", "p=b")] == [0, 1], "and again, while the service is left alone"
        assert sent.counts.served == 1 and sum(sent.counts.fell_back.values()) == 2
    assert len(sent.files("t", "p=b")) == 2 and sent.counts.served == 2


def test_views_without_a_service_make_their_own(store: Store, url: str, tmp_path: Path) -> None:
    put(store, 0)
    alone = pickle.loads(pickle.dumps(views(store, url, tmp_path, None)))
    assert [f.partition for f in alone.files("t")] == ["p=a", "p=b", "p=c"]
    assert alone.counts.as_json() == {"served": 0, "fell_back": {"no service": 1}}
    with pytest.raises(nova.VersionNotFound):
        alone.files("t", at=9)
    with pytest.raises(nova.ChannelNotFound):
        alone.files("nope")


def test_who_is_far_behind_is_not_kept_from_the_service(
    store: Store, url: str, tmp_path: Path, service: tuple[FaultyProxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker was sent along with is too old to be told the way from there: it finds out where it is, once."""
    monkeypatch.setattr(desk_of_views, "LINKS", 3)
    before, token = service
    client = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    sent: Views = pickle.loads(pickle.dumps(views(store, url, tmp_path, client)))
    for k in range(1, 8):
        put(store, k)
    other = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    assert catalog_through_views(store.catalog, other).histories.of("t").head == 8  # so is the service's view
    for _ in range(3):
        assert [f.lo for f in sent.files("t", "p=b")] == [0]
    assert sent.counts.fell_back == {"behind": 1} and sent.counts.served == 2


def test_a_question_that_the_service_may_not_answer_is_no_fault_of_its(
    store: Store, service: tuple[FaultyProxy, str]
) -> None:
    before, token = service
    client = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    seen = catalog_through_views(store.catalog, client)
    put(store, 1)
    store.compact("t")
    store.collect_garbage("t")
    for _ in range(3):
        with pytest.raises(nova.BlockCollected):
            modes.snapshot(seen.histories.of("t", 1), 1)
        assert seen.histories.of("t").head == 2
    assert "paused" not in client.counts.fell_back
    with pytest.raises(nova.ChannelNotFound):
        seen.histories.of("nope")
    assert seen.histories.of("t").head == 2 and "paused" not in client.counts.fell_back


@pytest.mark.parametrize("fault", ["dead", "failing", "busy", "other catalog", "cut"])
def test_another_address_answers_for_one_that_fails(store: Store, service: tuple[FaultyProxy, str], fault: str) -> None:
    """Without the catalog; and the address that failed is asked again later."""
    one, token = service
    with run_faulty_proxy(one.upstream_url) as two:
        client = ViewServiceClient([one.url, two.url], token, 10.0, store.catalog.identity.get())
        seen = catalog_through_views(store.catalog, client)
        one.set_fault(fault)
        asked_before = two.request_count
        for _ in range(6):
            assert seen.histories.of("t").head == 1
        assert (client.counts.served, client.counts.fell_back) == (6, {})
        assert two.request_count == asked_before + 6
        one.set_fault("well")
        time.sleep(AFTER_THE_PAUSE)
        asked_before = one.request_count
        for _ in range(4):
            assert seen.histories.of("t").head == 1
        assert one.request_count >= asked_before + 2 and client.counts.fell_back == {}


@pytest.mark.parametrize("wrong", [{"url": "http://127.0.0.1:abc"}, {"token": "nova_ä"}])
def test_no_job_fails_for_how_the_service_is_named(store: Store, wrong: dict[str, str]) -> None:
    put(store, 0)
    client = ViewServiceClient(**{"url": "http://127.0.0.1:9", **wrong})
    assert Views("wh", lambda: store.catalog, client).files("t", "p=a")
    assert client.counts.fell_back == {"failing": 1}


@pytest.mark.core
@pytest.mark.parametrize(
    "wrong",
    [{"service": "127.0.0.1:8765"}, {"service": "http://127.0.0.1:abc"}, {"service": "http://h:0"}]
    + [{"service_token": token} for token in ("nova_quokka_ä", "nova_quokka x", "nova_quokka\n")],
)
def test_settings_that_name_no_service(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(nova.SettingsError) as refused:
        load_settings(start_folder=tmp_path, **wrong)
    assert next(iter(wrong)) in refused.value.what and "quokka" not in str(refused.value)


def test_no_job_fails_for_a_connection_that_was_closed(
    store: Store, service: tuple[FaultyProxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 0)
    client = ViewServiceClient(service[0].url, service[1])
    real = client._connected

    def closed() -> Any:
        http = real()
        client.close()
        return http

    monkeypatch.setattr(client, "_connected", closed)
    assert Views("wh", lambda: store.catalog, client).files("t", "p=a")
    assert client.counts.fell_back == {"failing": 1}


def test_an_answer_to_another_question_is_not_believed(store: Store, service: tuple[FaultyProxy, str]) -> None:
    before, token = service
    put(store, 1)
    client = ViewServiceClient(before.url, token, timeout_seconds=10.0, catalog_id=store.catalog.identity.get())
    seen = catalog_through_views(store.catalog, client)
    assert len(seen.histories.of("t", scope="p=b").blocks) == 2
    before.set_fault("stale")  # whatever is asked, it answers for p=b
    assert len(seen.histories.of("t").blocks) == 6 and client.counts.fell_back == {"wrong": 1}
