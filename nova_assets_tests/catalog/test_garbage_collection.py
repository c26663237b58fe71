"""Files that may be deleted, and reads that a compaction would have saved, as the catalog sees them (R14, R15)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import null, update

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.tables import published_versions
from nova_assets.model.block import DataFile, Kind, Manifest
from nova_assets.model.commit import CommitRequest
from nova_assets.model.published_version import PublishedContent
from nova_assets_tests.catalog.commit_requests import SCHEMA, begin_execution, build_commit_request, channel


def add(catalog: Catalog, name: str, path: str, kind: Kind = "delta") -> None:
    """A commit of one file."""
    request = build_commit_request(begin_execution(catalog, name))
    manifest = Manifest((DataFile(path, 1, 10),), SCHEMA)
    block = replace(request.added_blocks[0], channel=name, kind=kind, manifest=manifest)
    catalog.commits.commit(replace(request, added_blocks=(block,)))


def test_a_published_version_holds_the_files_of_its_own_channel_alone(catalog: Catalog) -> None:
    catalog.definitions.register([nova.Channel("published", schema="k bigint")])
    add(catalog, "c", "blocks/a/0")
    add(catalog, "published", "blocks/z/0")
    publishing = begin_execution(catalog, "published")
    [block] = catalog.histories.of("published", 1).blocks  # type: ignore[union-attr]
    content = PublishedContent("published", 1, SCHEMA, (), block.manifest.files, blocks=(block.id,))
    catalog.published_versions.open(publishing.id, "hive:there", content, content.fingerprint(include_seals=False))
    catalog.executions.abort(publishing.id, "it was killed")
    for name in ("c", "published"):
        add(catalog, name, f"blocks/{name}/1", "base")
        assert len(catalog.garbage.collect(name).blocks) == 1

    real = catalog.database.clock
    catalog.database.clock = lambda: real() + timedelta(hours=1)
    assert [path for _, path in catalog.garbage.deletable_files(60)] == ["blocks/a/0"]
    catalog.published_versions.delete("published", "hive:there", [1])
    assert [path for _, path in catalog.garbage.deletable_files(60)] == ["blocks/a/0", "blocks/z/0"]
    assert catalog.garbage.deletable_files(2 * 3600) == []


def test_a_published_version_holds_the_files_that_it_lists_and_no_others(catalog: Catalog) -> None:
    for path, kind in (("blocks/a/0", "delta"), ("blocks/b/0", "base"), ("blocks/c/0", "base")):
        add(catalog, "c", path, kind)  # type: ignore[arg-type]
    listed = next(b for b in catalog.histories.of("c").blocks if b.manifest.files[0].path == "blocks/b/0")
    publishing = begin_execution(catalog)
    content = PublishedContent("c", 2, SCHEMA, (), listed.manifest.files, blocks=(listed.id,))
    catalog.published_versions.open(publishing.id, "hive:there", content, content.fingerprint(include_seals=False))
    catalog.executions.abort(publishing.id, "it was killed")
    assert len(catalog.garbage.collect("c").blocks) == 2
    real = catalog.database.clock
    catalog.database.clock = lambda: real() + timedelta(hours=1)
    assert [path for _, path in catalog.garbage.deletable_files(60)] == ["blocks/a/0"]
    # A package that did not record the blocks held all files of blocks that were collected later.
    catalog.database.write(lambda c: c.execute(update(published_versions).values(blocks=null())))
    assert catalog.garbage.deletable_files(60) == []
    assert [v.number for v in catalog.published_versions.find("c")] == [1]


def test_full_reads_are_counted_from_the_newest_base_on(catalog: Catalog) -> None:
    moments = iter(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(10_000))
    catalog.database.clock = lambda: next(moments)
    whole = nova.task(name="whole", consumes=nova.all(channel))(lambda c: None)
    changes = nova.task(name="changes", consumes=nova.new(channel))(lambda c: None)
    catalog.definitions.register([channel], [nova.bind(nova.Workflowette(t.name, [t])) for t in (whole, changes)])

    def read(binding: str) -> int:
        execution = begin_execution(catalog)
        catalog.commits.commit(CommitRequest(uuid.uuid4().hex, execution.id, execution.epoch, binding, ()))
        return catalog.garbage.count_full_reads("c")

    add(catalog, "c", "blocks/a/0")
    assert catalog.garbage.count_full_reads("c") == 0
    assert [read("changes"), read("whole"), read("whole")] == [0, 1, 2]
    add(catalog, "c", "blocks/b/0", "base")
    assert catalog.garbage.count_full_reads("c") == 0 and read("whole") == 1
