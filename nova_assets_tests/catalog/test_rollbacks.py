"""Rollbacks in the catalog: recorded with the removal of the files, once, also if several processes sweep."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.block import DataFile, Manifest, StagedBlock
from nova_assets.model.timeline import RolledBackBlock, TimelinePosition
from nova_assets_tests.catalog.commit_requests import SCHEMA, begin_execution, build_commit_request


def stage(catalog: Catalog, execution_id: str, partition: str, channel: str | None = "c") -> StagedBlock:
    """Record a staged block with one file of its own, and one file of another block."""
    block = uuid.uuid4().hex
    staged = StagedBlock(block, execution_id, channel, "c", "delta", f"blocks/{block}", 1)
    catalog.staging.record([staged])
    files = [DataFile(f"blocks/{of}/0", 1, 10, {}, partition=partition) for of in (block, "another")]
    catalog.staging.record_manifest(block, Manifest(tuple(files), SCHEMA))
    return staged


@pytest.mark.slow
def test_several_sweepers_record_one_rollback(catalog: Catalog, url: str) -> None:
    """It names the files that were removed, and none that the block shared with others."""
    execution = begin_execution(catalog)
    one, other = (stage(catalog, execution.id, partition) for partition in ("p=1", "p=2"))
    private = stage(catalog, execution.id, "", channel=None)
    swept = stage(catalog, execution.id, "p=3")
    catalog.executions.abort(execution.id, "its process was killed")
    removed = {b.id: [f"{b.folder}/0"] for b in (one, other, private)}
    removed[swept.id] = []  # a sweep removed its files, and was killed before it said so
    sweepers = [open_catalog(url) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda sweeper: sweeper.staging.mark_swept(removed), sweepers))
    for sweeper in sweepers:
        sweeper.close()
    head, steps = catalog.timelines.steps("c", TimelinePosition())
    assert steps is not None and [s.action for s in steps] == ["rollback"] and head.head == 0
    assert sorted(steps[0].rolled_back, key=lambda b: b.partition) == [
        RolledBackBlock(one.id, "p=1", one.folder, (f"{one.folder}/0",)),
        RolledBackBlock(other.id, "p=2", other.folder, (f"{other.folder}/0",)),
        RolledBackBlock(swept.id, "p=3", swept.folder, (f"{swept.folder}/0",)),
    ]
    [instant] = catalog.instants.of("c")
    assert (instant.rolled_back, instant.commit_id) == (steps[0].rolled_back, steps[0].commit_id)
    assert instant.details["execution"] == execution.id
    catalog.staging.mark_swept(removed)  # the second sweep
    assert len(catalog.instants.of("c")) == 1


def test_a_rollback_does_not_disturb_a_commit_that_began_before(catalog: Catalog) -> None:
    """It takes no number and changes no head, so the other execution need not be planned again."""
    aborted, execution = begin_execution(catalog), begin_execution(catalog)
    staged = stage(catalog, aborted.id, "p=1")
    catalog.executions.abort(aborted.id, "its process was killed")
    catalog.staging.mark_swept({staged.id: [f"{staged.folder}/0"]}, is_final=True)
    assert catalog.commits.commit(build_commit_request(execution)).numbers == {"c": 1}
    assert [(i.action, i.seq) for i in catalog.instants.of("c")] == [("rollback", None), ("commit", 1)]
    assert [i.action for i in catalog.instants.of("c", limit=1)] == ["commit"]
