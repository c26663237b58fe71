"""Excerpts of histories give the very plans that the whole histories give, whatever has happened to a channel."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, update

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.catalog.tables import blocks, channels, commits, files
from nova_assets.errors import BlockCollected
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.model.schema import parse_ddl
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets_tests.effort import examples

pytestmark = pytest.mark.slow

NOW = datetime(2024, 1, 1, tzinfo=UTC)
PLAIN, ONE, TWO = ("",), ("p=a", "p=b", "p=c"), ("p=a/q=x", "p=a/q=y", "p=b/q=x")
LAYOUTS = {PLAIN: [], ONE: [nova.dynamic("p")], TWO: [nova.dynamic("p"), nova.dynamic("q")]}
MANY = tuple(f"p={p}/q={q}" for p in ("1", "12") for q in range(12))
"""More partitions than are loaded one by one."""

SCOPES = {PLAIN: ("",), ONE: ("", "p=a", "p=nowhere"), TWO: ("", "p=a", "q=x", "p=a/q=x")}
MODELS = (nova.Append(), nova.Upsert(key=["p", "q", "k"]))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    url = "sqlite://" if request.param == "sqlite" else request.getfixturevalue("postgres_catalog_url")
    made = open_catalog(url)
    yield made
    made.close()


@dataclass(frozen=True)
class Told:
    """One block of a made-up timeline."""

    partition: str
    kind: str
    lo: int
    hi: int
    origin: str
    collected: bool


@dataclass(frozen=True)
class Timeline:
    partitions: tuple[str, ...]
    merge: nova.Append | nova.Upsert
    head: int
    blocks: tuple[Told, ...]
    asked: tuple[tuple[int, int, str], ...]


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Commits, compactions that only exist where something was, and collections, also such as nobody may do."""
    partitions = draw(st.sampled_from(list(LAYOUTS)))
    head = draw(st.integers(1, 10))
    made: list[tuple[str, str, int, int, str]] = []
    numbers: dict[str, list[int]] = {p: [] for p in partitions}
    for n in range(1, head + 1):
        for p in draw(st.sets(st.sampled_from(partitions), min_size=1)):
            numbers[p].append(n)
            how = draw(st.sampled_from(["delta"] * 6 + ["base", "told", "restore", "drop"]))
            if how in ("delta", "told"):
                made.append((p, "delta", n - 1, n, "task"))
            if how != "delta":
                made.append((p, "base", n, n, how if how in ("restore", "drop") else "insert"))
    for p, there in numbers.items():
        for n in draw(st.sets(st.sampled_from(there), max_size=3)) if there else ():
            made.append((p, "base", n, n, "compact"))
        for lo, hi in draw(st.lists(st.tuples(st.integers(0, head), st.sampled_from(there or [1])), max_size=2)):
            if lo < hi and hi in there:
                made.append((p, "delta", lo, hi, "compact"))
    gone = draw(st.integers(0, head))  # up to which most are collected
    often = st.sampled_from([True, True, True, False])
    seldom = st.sampled_from([True] + [False] * draw(st.sampled_from([7, 1000])))
    told = tuple(Told(*b, draw(often if b[3] <= gone else seldom)) for b in made)
    scope = st.sampled_from(SCOPES[partitions])
    asked = draw(st.lists(st.tuples(st.integers(0, head), st.integers(0, head), scope), min_size=2, max_size=5))
    return Timeline(partitions, draw(st.sampled_from(MODELS)), head, told, tuple(asked))


def schema(n: int, more: str = "") -> Any:
    return parse_ddl(f"p string, q string, k bigint, v{n}{more} bigint")


def write(catalog: Catalog, timeline: Timeline) -> str:
    """The timeline, as rows."""
    name, commit = f"c_{uuid.uuid4().hex}", uuid.uuid4().hex
    layout = LAYOUTS[TWO if timeline.partitions == MANY else timeline.partitions]
    catalog.definitions.register([nova.Channel(name, merge=timeline.merge, partitions=layout)])
    rows = [
        {
            "id": uuid.uuid4().hex,
            "channel": name,
            "partition": b.partition,
            "kind": b.kind,
            "lo": b.lo,
            "hi": b.hi,
            "rows": 1,
            "bytes": 1,
            "deletes": 0,
            "schema": schema(b.hi, "delta" if b.kind == "delta" else "").as_json(),
            "format": "jsonl",
            "keeps_all": False,
            "merge": timeline.merge.as_json(),
            "origin": b.origin,
            "commit_id": commit,
            "collected_at": NOW if b.collected and b.origin != "drop" else None,
        }
        for b in timeline.blocks
    ]
    of = {"execution_id": commit, "at": NOW, "heads": {}, "consumed": {}, "details": {}}
    listed = [
        {"block_id": r["id"], "ordinal": n, "path": f"{r['id']}/{n}", "rows": 1, "bytes": 1, "ranges": {}}
        for r in rows
        for n in range(2)
    ]

    def work(c: Any) -> None:
        now = {"head": timeline.head, "schema": schema(timeline.head).as_json()}
        c.execute(update(channels).where(channels.c.name == name).values(**now))
        c.execute(insert(commits).values(id=commit, **of))
        c.execute(insert(blocks), rows)
        c.execute(insert(files), listed)

    catalog.database.write(work)
    return name


def answer(how: Callable[..., Any], *of: Any) -> Any:
    try:
        return how(*of)
    except BlockCollected:
        return "collected"


def newest(history: History) -> dict[str, str]:
    """What a base is compared with: the last block of each partition."""
    return {t.partition: t.blocks[-1].id for t in history.partition_histories if t.blocks}


@settings(max_examples=examples(40, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(timeline=timelines())
def test_an_excerpt_plans_as_the_whole(catalog: Catalog, timeline: Timeline) -> None:
    name = write(catalog, timeline)
    for a, b, scope in timeline.asked:
        i, j = sorted((a, b))
        whole = catalog.histories.of(name, j, scope)
        now = catalog.histories.of(name, j, scope, back_to=j)
        assert answer(modes.snapshot, now) == answer(modes.snapshot, whole), "all"
        assert newest(now) == newest(whole) and now.last_merge == whole.last_merge and now.schema == whole.schema
        told = answer(modes.changes, whole, i)
        since = catalog.histories.of(name, j, scope, i)
        then = catalog.histories.of(name, j, scope, back_to=i)
        if i:
            assert answer(modes.changes, since, i) == told, "new"
            assert answer(modes.changes, then, i) == told, "new, beside old"
        assert answer(modes.snapshot, then, i) == answer(modes.snapshot, whole, i), "old"
        assert answer(modes.snapshot, then) == answer(modes.snapshot, whole), "all, beside old"


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(timeline=timelines(), limit=st.integers(1, 5))
def test_the_newest_blocks_are_the_last_of_the_whole(catalog: Catalog, timeline: Timeline, limit: int) -> None:
    name = write(catalog, timeline)
    for _, at, scope in timeline.asked:
        whole = list(reversed(catalog.histories.of(name, at, scope).blocks))
        assert catalog.histories.blocks(name, at, scope) == whole
        last = whole[min(limit, len(whole)) - 1].hi if whole else 0
        assert catalog.histories.blocks(name, at, scope, limit) == [b for b in whole if b.hi >= last], (
            "the last number is whole"
        )
    with pytest.raises(nova.VersionNotFound):
        catalog.histories.blocks(name, timeline.head + 1)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(timeline=timelines())
def test_a_view_has_the_excerpts_of_the_catalog(catalog: Catalog, timeline: Timeline) -> None:
    name = write(catalog, timeline)
    follower = TimelineFollower(catalog, MemoryStorage())
    for a, b, scope in timeline.asked:
        i, at = sorted((a, b))
        for asked in ({}, {"since": i}, {"back_to": i}):
            found = follower.ask(
                name, lambda v, s=scope, n=at, of=asked: v.has_schema_at(n) and v.excerpt(s, n, **of)[0]
            )
            if found:
                whole = catalog.histories.of(name, at, scope, asked.get("since"), back_to=asked.get("back_to"))
                assert [b.id for b in found.blocks] == [b.id for b in whole.blocks], asked
                assert (found.schema, found.schema_at_first_version, found.base_floors) == (
                    whole.schema,
                    whole.schema_at_first_version,
                    whole.base_floors,
                ), asked


@pytest.mark.core
def test_an_excerpt_never_takes_the_beginning_for_what_it_leaves_out(catalog: Catalog) -> None:
    """Asked for more than it is for, it says that this is gone."""
    compacted = [Told("", "delta", n - 1, n, "task", False) for n in range(1, 7)]
    compacted.append(Told("", "base", 4, 4, "compact", False))
    name = write(catalog, Timeline(PLAIN, MODELS[0], 6, tuple(compacted), ()))
    excerpt = catalog.histories.of(name, back_to=6)
    assert [b.range for b in excerpt.blocks] == ["B4", "Δ(3→4)", "Δ(4→5)", "Δ(5→6)"]
    with pytest.raises(BlockCollected):
        modes.snapshot(excerpt, 3)


@pytest.mark.parametrize("scope", ["", "p=1", "q=1"])
def test_an_excerpt_of_many_partitions_has_none_of_another_channel_or_scope(catalog: Catalog, scope: str) -> None:
    told = [Told(p, "delta", n - 1, n, "task", False) for p in MANY for n in (1, 2, 3)]
    told += [Told(p, "base", 2, 2, "compact", False) for p in MANY]
    timeline = Timeline(MANY, MODELS[0], 3, tuple(told), ())
    name, _ = write(catalog, timeline), write(catalog, timeline)
    whole, now = catalog.histories.of(name, 3, scope), catalog.histories.of(name, 3, scope, back_to=3)
    assert [b.id for b in now.blocks] == [b.id for b in whole.blocks if b.hi > 2 or b.range in ("B2", "Δ(1→2)")]
    assert modes.snapshot(now) == modes.snapshot(whole)
