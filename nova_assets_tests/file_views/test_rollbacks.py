"""Rollbacks and restores are instants with the partitions and files that they touched, and views apply them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nova_assets.cli.main import cli
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.sqlite_storage import open_storage
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.model.block import StagedBlock
from nova_assets.model.commit import CommitRequest
from nova_assets.model.execution import Execution
from nova_assets.model.timeline import Instant
from nova_assets.settings import VIEW_STORAGES
from nova_assets.store.store import Store
from nova_assets_tests.file_views.conftest import PARTITIONS, put
from nova_assets_tests.service.test_fast_lookups import LookupService

ROWS = [{"p": p, "k": 9} for p in "ac"]


def staged(store: Store, execution: Execution, rows: Sequence[dict[str, Any]] = ROWS) -> list[str]:
    """Stage a delta of the channel. Returns the paths of its files."""
    state = store.catalog.definitions.channel("t")
    history = store.catalog.histories.of("t", state.head)
    frame = store.engine.frames.to_frame(rows)
    block = store.runtime.staging.write(execution, "t", "delta", state.channel, history, frame)
    assert block.manifest is not None
    return [f.path for f in block.manifest.files]


def aborted(store: Store) -> list[str]:
    """An insert that fails after its files were staged. Returns the paths of the files."""
    with pytest.raises(ZeroDivisionError), store.runtime.channel_writer.write("t") as execution:
        paths = staged(store, execution)
        raise ZeroDivisionError
    return paths


def complete(store: Store, action: str) -> list[Instant]:
    return [i for i in store.timeline("t") if (i.action, i.state) == (action, "complete")]


@pytest.fixture(params=VIEW_STORAGES)
def follower(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> TimelineFollower:
    return TimelineFollower(store.catalog, open_storage(request.param, tmp_path / "views", 2**14, "me"))


def test_an_aborted_execution_whose_files_were_removed_is_an_instant(store: Store) -> None:
    put(store, 0)
    before = store.catalog.definitions.channel("t")
    paths = aborted(store)
    [rollback] = complete(store, "rollback")
    assert store.timeline("t", 1) == [rollback]
    assert sorted(p for b in rollback.rolled_back for p in b.files) == sorted(paths)
    assert [b.partition for b in rollback.rolled_back] == ["p=a", "p=c"] and len(paths) == 2
    assert rollback.seq is None and rollback.blocks == () and rollback.binding is None
    assert not any((Path(store.engine.warehouse.address) / p).exists() for p in paths)
    after = store.catalog.definitions.channel("t")
    assert (after.head, after.position.step) == (before.head, before.position.step + 1), "no answer has changed"


def test_a_rollback_is_requested_until_the_files_are_removed(store: Store) -> None:
    """The process was killed while it wrote a second block. Its files are swept later, twice."""
    put(store, 0)
    execution = store.runtime.channel_writer.begin("t")
    paths = staged(store, execution)
    block = store.catalog.staging.of(execution.id)[0]
    cut_off, unwritten = (StagedBlock(i, execution.id, "t", "t", "delta", f"blocks/{i}", 1, "p=b") for i in ("1", "2"))
    store.catalog.staging.record([cut_off, unwritten])
    written = Path(store.engine.warehouse.address) / cut_off.folder / "part-0"
    written.parent.mkdir()
    written.touch()
    store.catalog.executions.abort(execution.id, "its process was killed")
    assert [(i.action, i.state) for i in store.timeline("t")][-1] == ("rollback", "requested")
    time.sleep(0.01)
    for _ in range(3):
        store.runtime.staging.delete_dead_staging(0.0, 0.0)
    assert not written.exists()
    [rollback] = complete(store, "rollback")
    assert [(i.action, i.state) for i in store.timeline("t")] == [("commit", "complete"), ("rollback", "complete")]
    assert {(b.id, b.partition): b.files for b in rollback.rolled_back} == {
        ("1", "p=b"): ("blocks/1/part-0",),
        (block.id, "p=a"): (paths[0],),
        (block.id, "p=c"): (paths[1],),
    }


def test_an_aborted_execution_without_files_is_no_instant(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.runtime.channel_writer.write("t"):
        raise ZeroDivisionError
    assert store.timeline("t") == []


def test_what_a_committed_execution_leaves_behind_is_no_rollback(store: Store) -> None:
    """A task ran twice, and the files of its first attempt are removed after the commit."""
    execution = store.runtime.channel_writer.begin("t")
    paths = staged(store, execution)
    store.catalog.staging.drop(execution.id, ["t"])
    store.catalog.commits.commit(CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, None, ()))
    time.sleep(0.01)
    assert store.runtime.staging.delete_dead_staging(0.0, 0.0) == 1
    assert not any((Path(store.engine.warehouse.address) / p).exists() for p in paths)
    assert store.timeline("t") == []


def test_views_apply_rollbacks_and_restores_without_listing(
    store: Store, follower: TimelineFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = ViewQueryHandler(follower)
    put(store, 0)
    put(store, 1, "a")
    files_before = handler.files_answer("t", "", None, None)
    loaded = follower.counts.loaded
    aborted(store)
    rollback_step = store.catalog.definitions.channel("t").position.step

    def forbidden(*arguments: Any) -> Any:
        raise AssertionError("the view lists files, or loads a partition")

    monkeypatch.setattr(store.engine.warehouse, "list_block_entries", forbidden)
    monkeypatch.setattr(store.engine.external_files, "list_files", forbidden)
    monkeypatch.setattr(store.catalog.timelines, "head_and_full_history", forbidden)
    known = follower.ask("t", lambda view: view.position)
    files_after = handler.files_answer("t", "", None, None)
    assert _blocks(files_after) == _blocks(files_before), "no block has changed"
    assert known.step == rollback_step == 3
    store.restore("t", 1)
    restored = {b["block"]["partition"]: [f["path"] for f in b["files"]] for b in _blocks_of(handler)}
    _, instants = handler.instants("t", 0, 10)
    assert [(i.action, i.partitions, i.seq) for i in instants[-2:]] == [
        ("rollback", ("p=a", "p=c"), None),
        ("restore", PARTITIONS, 3),
    ]
    [instant] = complete(store, "restore")
    assert restored == {b.partition: [f.path for f in b.manifest.files] for b in instant.blocks}
    assert (follower.counts.loaded, follower.counts.rebuilt, follower.counts.restarted) == (loaded, 0, 0)
    follower.close()


def _blocks(answer: bytes) -> Any:
    return json.loads(answer)["blocks"]


def _blocks_of(handler: ViewQueryHandler) -> Any:
    return _blocks(handler.files_answer("t", "", None, None))


def test_a_view_that_is_far_behind_gets_the_rollbacks_from_the_catalog(store: Store) -> None:
    put(store, 0)
    aborted(store)
    instants = store.catalog.instants.summaries("t", 0, 10)
    assert [(i.action, i.partitions) for i in instants] == [("commit", PARTITIONS), ("rollback", ("p=a", "p=c"))]


def test_rollbacks_are_shown_over_http_and_on_the_command_line(
    store: Store, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 0)
    [path, _] = aborted(store)
    service = LookupService(store, MemoryStorage())
    told = service.get("/v1/channels/t/timeline", routes=True).json()[-1]
    assert told["action"] == "rollback" and path in told["rolled_back"][0]["files"]
    assert Instant.from_json(told) == store.timeline("t")[-1]
    instants = service.get("/v1/channels/t/instants", routes=True).json()["instants"]
    assert (instants[-1]["action"], instants[-1]["partitions"]) == ("rollback", ["p=a", "p=c"])
    assert service.get("/v1/channels/t/touched?after=1", routes=True).json()["partitions"] == []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOVA_CATALOG", url)
    text = CliRunner().invoke(cli, ["timeline", "t"]).output
    assert "removed 1 files p=a" in text and "rollback" in text
    told = json.loads(CliRunner().invoke(cli, ["timeline", "t", "--json"]).output)["instants"][-1]
    assert told["action"] == "rollback" and path in told["rolled_back"][0]["files"]


def test_instants_name_their_partitions_in_one_order(store: Store) -> None:
    """A view gets them from the blocks of a step, and a service without a view from the catalog."""
    put(store, 0, "bc")
    follower = TimelineFollower(store.catalog, MemoryStorage())
    follower.ask("t", lambda view: None)
    put(store, 1, "bc")
    for k in (2, 3):
        put(store, k, "a")
    store.compact("t")  # p=a at a later number than the others
    store.collect_garbage("t")
    applied = follower.ask("t", lambda view: view.instants())
    assert [(i.action, i.partitions) for i in applied[-2:]] == [("compact", PARTITIONS), ("collect", PARTITIONS)]
    summaries = store.catalog.instants.summaries("t", applied[0].n - 1, 10)
    assert [i.partitions for i in applied] == [s.partitions for s in summaries]
    follower.close()
