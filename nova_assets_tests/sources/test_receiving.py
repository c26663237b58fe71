"""Files that arrive in a folder go onto a channel, each exactly once. None of it starts Spark."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.arrival import Arrival
from nova_assets.sources.folder import FolderInbox
from nova_assets_tests.formats.test_isolated import killer
from nova_assets_tests.sources.landing import Landing, row


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    found = Landing(tmp_path)
    yield found
    found.store.close()


def test_what_is_there_is_taken_once(landing: Landing) -> None:
    landing.put("a.json", row(1), row(2))
    landing.put("deep/er/b.json.gz", row(3))
    landing.put("_SUCCESS", raw=b"")
    landing.put(".a.json.swp", row(9))
    found = landing.store.receive("actions")
    assert (found.announced, found.files, found.rows, found.bad, found.waiting) == (2, 2, 3, 0, 0)
    assert len(found.commits) == 1 and found.commits[0].numbers == {"actions": 1}
    again = landing.store.receive("actions")
    assert (again.announced, again.files, again.commits) == (0, 0, ())
    assert landing.ids() == [1, 2, 3]
    assert landing.states() == {"a.json": "taken", "deep/er/b.json.gz": "taken"}


def test_bad_records_and_files_are_set_aside(landing: Landing) -> None:
    landing.put("a.json", row(1), b"{oops\n", row("two"), row(None), row(4))
    landing.put("b.json.gz", raw=gzip.compress(json.dumps(row(5)).encode())[:20])
    landing.put("c.xls", raw=b"?")
    landing.put("d.json", raw=b"")
    found = landing.store.receive("actions")
    assert (found.files, found.rows, found.bad) == (4, 2, 5)
    assert landing.ids() == [1, 4]
    aside = landing.quarantined()
    assert [(f, line) for f, line, _ in aside] == [
        ("a.json", 2),
        ("a.json", 3),
        ("a.json", 4),
        ("b.json.gz", 0),
        ("c.xls", 0),
    ]
    reasons = [reason for _, _, reason in aside]
    for part, reason in zip(
        ("no JSON", "'two' is no bigint", "'id' is null", "to its end", "does not say its format"), reasons, strict=True
    ):
        assert part in reason
    assert landing.states() == {"a.json": "taken", "b.json.gz": "refused", "c.xls": "refused", "d.json": "taken"}
    said = {s.arrival.path: s.reason for s in landing.store.arrivals("actions")}
    assert said["d.json"] is None and said["a.json"] is not None, said
    assert re.search(r"^line 2: .*no JSON.*; line 3: .*'two' is no bigint.*; line 4: .*'id' is null", said["a.json"])
    assert found.commits[0].numbers == {"actions": 1, "actions_quarantine": 1}, "published together"


def test_rows_that_no_partition_has_are_set_aside(tmp_path: Path) -> None:
    parts = [nova.daily("day", start="2024-01-01"), nova.static("action", ["view", "buy"])]
    landing = Landing(tmp_path, partitions=parts)
    landing.put(
        "a.json", row(1), row(2, day="2023-12-31"), row(3, action="steal"), row(4, day=None), row(5, action="buy")
    )
    assert landing.store.receive("actions").rows == 2
    assert landing.ids() == [1, 5]
    assert [line for _, line, _ in landing.quarantined()] == [2, 3, 4]
    held = [p.partition for p in landing.store.partitions("actions")]
    assert held == ["day=2024-01-01/action=buy", "day=2024-01-01/action=view"]


def test_too_many_bad_records_stop_it_and_nothing_is_taken(tmp_path: Path) -> None:
    landing = Landing(tmp_path, max_bad=0.2)
    landing.put("a.json", row(1), b"?\n", b"?\n", row(4))
    with pytest.raises(nova.TooManyBadRecords, match=r"2 of 4 arrived records.*\n.*a.json, line 2: no JSON") as met:
        landing.store.receive("actions")
    assert (met.value.bad, met.value.records) == (2, 4)
    assert landing.states() == {"a.json": "waiting"} and landing.ids() == []
    landing.options["max_bad"] = 0.5
    with landing.open() as store:
        assert store.receive("actions").rows == 2


def test_a_file_that_is_being_written_is_left_for_later(landing: Landing) -> None:
    path = landing.put("a.json", row(1), old=0)
    assert landing.store.receive("actions").announced == 0
    os.utime(path, (path.stat().st_mtime - 5, path.stat().st_mtime - 5))
    assert landing.store.receive("actions").rows == 1


def test_a_file_that_is_replaced_after_it_was_taken_is_set_aside(landing: Landing) -> None:
    landing.put("a.json", row(1))
    landing.store.receive("actions")
    landing.put("a.json", row(1), row(2))
    found = landing.store.receive("actions")
    assert (found.rows, found.bad) == (0, 1) and landing.ids() == [1]
    assert "replaced after it had been taken" in landing.quarantined()[0][2]


def test_or_it_is_taken_where_that_is_asked_for(tmp_path: Path) -> None:
    landing = Landing(tmp_path, on_replaced="take")
    landing.put("a.json", row(1))
    landing.store.receive("actions")
    landing.put("a.json", row(2), row(3))
    landing.store.receive("actions")
    assert landing.ids() == [1, 2, 3]


def test_a_file_that_was_set_aside_is_taken_when_it_comes_again_whole(landing: Landing) -> None:
    landing.put("a.json.gz", raw=gzip.compress(json.dumps(row(1)).encode())[:20])
    landing.store.receive("actions")
    landing.put("a.json.gz", row(1))
    assert landing.store.receive("actions").rows == 1
    assert landing.ids() == [1]


class Fickle(FolderInbox):
    """A folder in which something happens to the files between announcement and reading."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.before: Any = lambda path: None
        self.after: Any = lambda path: None

    def fetch(self, arrival: Arrival) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def fetched() -> Iterator[Any]:
            self.before(self.root / arrival.path)
            with super(Fickle, self).fetch(arrival) as file:
                yield file
                self.after(self.root / arrival.path)

        return fetched()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_is_deleted_or_replaced_meanwhile_is_not_half_taken(when: str, landing: Landing) -> None:
    landing.put("a.json", row(1))
    landing.put("b.json", row(2))
    landing.put("c.json", row(3))
    source = landing.channel.source
    assert source is not None
    inbox = Fickle(source, landing.folder)

    def meddle(path: Path) -> None:
        if path.name == "a.json":
            path.unlink()
        if path.name == "b.json":
            landing.put("b.json", row(20), row(21))

    setattr(inbox, when, meddle)
    landing.store.receive("actions", inbox=inbox)
    assert landing.ids() == [3]
    assert [s.state for s in landing.store.arrivals("actions")].count("gone") == 2
    setattr(inbox, when, lambda path: None)
    landing.store.receive("actions", inbox=inbox)
    assert landing.ids() == [3, 20, 21], "the new version is another arrival"


NAMES = ["a b.json", "a\nb.json", "ünï.json", "😀.json", "..a.b.json", "a'b\"c.json", "%2e%2e.json", "a\\b.json"]


def test_names_of_any_kind(landing: Landing) -> None:
    for n, name in enumerate(NAMES):
        landing.put(name, row(n))
    (landing.folder / os.fsdecode(b"\xff.json")).write_bytes(json.dumps(row(99)).encode())
    os.utime(landing.folder / os.fsdecode(b"\xff.json"), (1, 1))
    found = landing.store.receive("actions")
    hidden = [n for n, name in enumerate(NAMES) if name.startswith(".")]
    assert landing.ids() == [n for n in range(len(NAMES)) if n not in hidden] + [99]
    assert found.bad == 0


def test_a_link_out_of_the_folder_is_set_aside(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_bytes(json.dumps(row(1)).encode())
    os.utime(tmp_path / "secret.json", (1, 1))
    (landing.folder / "a.json").symlink_to(tmp_path / "secret.json")
    (landing.folder / "folder").symlink_to(tmp_path)
    found = landing.store.receive("actions")
    assert (found.rows, found.bad) == (0, 1)
    assert "leads out of" in landing.quarantined()[0][2]


def test_batches_are_bounded(tmp_path: Path) -> None:
    landing = Landing(tmp_path, batch_files=3)
    for n in range(7):
        landing.put(f"{n}.json", row(n))
    found = landing.store.receive("actions")
    assert [c.numbers["actions"] for c in found.commits] == [1, 2, 3]
    assert landing.ids() == list(range(7))


@pytest.mark.slow
def test_two_at_once_take_each_file_once(landing: Landing) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for n in range(20):
        landing.put(f"{n}.json", row(n))
    with landing.open() as other, ThreadPoolExecutor() as pool:
        for done in [pool.submit(s.receive, "actions") for s in (landing.store, other)]:
            done.result()
    assert landing.ids() == list(range(20))


def test_a_missing_folder_is_told(landing: Landing) -> None:
    landing.folder.rmdir()
    with pytest.raises(nova.SourceUnavailable, match=f"folder {landing.folder}") as met:
        landing.store.receive("actions")
    assert "mkdir -p" in str(met.value.next)


def test_a_channel_without_a_source_is_told(landing: Landing) -> None:
    landing.store.register(nova.Channel("other", schema="id bigint"))
    with pytest.raises(nova.DefinitionError, match="has no source"):
        landing.store.receive("other")
    with pytest.raises(nova.ChannelNotFound):
        landing.store.receive("nothing")


def test_the_schema_is_inferred_once_and_then_held_to(tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    channel = nova.Channel("bag", source=nova.files(str(folder), min_age="1s"))
    with nova.open(nova.Project(channels=[channel]), f"sqlite:///{tmp_path}/c.db", tmp_path / "wh") as store:
        for name, content in (("a.json", '{"id": 1}'), ("b.json", '{"id": 2, "x": 1.5}'), ("c.json", "{")):
            (folder / name).write_text(content)
            os.utime(folder / name, (1, 1))
        assert store.receive("bag").rows == 2
        assert str(store.catalog.definitions.channel("bag").schema) == "id bigint, x double"
        (folder / "d.json").write_text('{"id": 3, "y": "new"}\n{"id": 4, "x": 2}')
        os.utime(folder / "d.json", (1, 1))
        found = store.receive("bag")
        assert (found.rows, found.bad) == (1, 1)


def test_only_the_last_hours_are_looked_through(tmp_path: Path) -> None:
    landing = Landing(tmp_path, hours="%Y-%m-%d/%H", look_back="3h")
    now = datetime.now(UTC)

    def put(first: int) -> None:
        for n in (0, 2, 9):
            landing.put(f"{now - timedelta(hours=n):%Y-%m-%d/%H}/{first}.json", row(first + n))
        landing.put(f"elsewhere/{first}.json", row(first + 50))

    put(0)
    landing.store.receive("actions")
    assert landing.ids() == [0, 2, 9, 50], "all of it, at the first look"
    put(100)
    landing.store.receive("actions")
    assert landing.ids() == [0, 2, 9, 50, 100, 102]
    landing.store.catalog.arrivals.record_source_listing("actions", now - timedelta(hours=8))
    landing.store.receive("actions")
    assert landing.ids() == [0, 2, 9, 50, 100, 102, 109], "and of the time in which nobody looked"


def test_what_was_set_aside_is_mended_and_replayed(landing: Landing) -> None:
    landing.put("a.json.gz", row(1), b'{"id": N/A}\n', row("3"), row(None), b"{\n")
    landing.put("b.csv", raw=b"id,action,day\n5,view,2024-01-01\nx6,view,\n")
    landing.put("c.json.gz", raw=gzip.compress(json.dumps(row(7)).encode())[:20])
    landing.store.receive("actions")
    assert landing.ids() == [1, 5] and len(landing.quarantined()) == 6
    nothing = landing.store.replay("actions", lambda r: None)
    assert (nothing.rows, nothing.files, nothing.left) == (0, 0, 6)
    assert landing.store.replayable("actions").files == 1

    def mend(found: Any) -> str | None:
        text: str = found["raw"]
        if found["file"] == "b.csv":
            assert found["header"] == "id,action,day"
            return text.removeprefix("x")
        return None if text == "{" else text.replace("N/A", "2").replace('"3"', "3").replace("null", "4")

    done = landing.store.replay("actions", mend)
    assert (done.rows, done.files, done.left) == (4, 0, 2) and done.commit is not None
    steps = [(s.channel, s.seq) for s in landing.store.provenance("actions", since=1)]
    assert steps[0] == ("actions", 2) and ("actions_quarantine", 1) in steps, "the rows were set aside before"
    assert landing.ids() == [1, 2, 3, 4, 5, 6]
    assert [(f, line) for f, line, _ in landing.quarantined()] == [("a.json.gz", 5), ("c.json.gz", 0)]
    assert landing.store.replay("actions", mend).commit is None
    assert landing.store.replay("actions").files == 1
    landing.put("c.json.gz", row(7))
    landing.store.receive("actions")
    assert landing.ids() == [1, 2, 3, 4, 5, 6, 7]


def test_a_file_that_waits_again_is_read_as_it_is_now(landing: Landing) -> None:
    landing.put("a.xyz", row(1))
    landing.store.receive("actions")
    assert landing.states() == {"a.xyz": "refused"}
    landing.options["format"] = "json"
    with landing.open() as store:
        assert store.replay("actions").files == 1
        assert landing.quarantined() == [] and landing.states() == {"a.xyz": "waiting"}
        assert store.receive("actions").rows == 1


def test_a_file_that_comes_back_is_taken(landing: Landing) -> None:
    path = landing.put("a.json", row(1))
    source = landing.channel.source
    assert source is not None
    inbox = Fickle(source, landing.folder)
    inbox.before = lambda found: path.rename(landing.home / "away")
    landing.store.receive("actions", inbox=inbox)
    assert landing.states() == {"a.json": "gone"}
    (landing.home / "away").rename(path)
    assert landing.store.receive("actions").announced == 1
    assert landing.ids() == [1] and landing.states() == {"a.json": "taken"}


def test_a_name_that_is_no_text_is_known_to_other_processes(landing: Landing) -> None:
    for name, n in ((b"caf\xe9.json", 1), (b"caf\\xe9.json", 2), (b"a\\\\x.json", 3)):
        path = landing.folder / os.fsdecode(name)
        path.write_text(json.dumps(row(n)))
        os.utime(path, (1, 1))
    source = landing.channel.source
    assert source is not None
    found = list(FolderInbox(source, landing.folder).list_arrivals(datetime.now(UTC), None))
    assert len({a.path for a in found}) == 3
    landing.store.receive("actions", look=False)  # registers
    landing.store.catalog.arrivals.announce("actions", found)
    landing.store.receive("actions", look=False)
    assert landing.ids() == [1, 2, 3]


STRANGE: dict[str, bytes] = {
    "a.json.gz": gzip.compress(b"x" * 1000)[:12] + b"\x00\xff" * 50,
    "a.csv": b"id,action,day\n1,a\rb,\n",
    "b.csv": "id,act\xefon,day\n1,a,\n".encode("latin-1"),
    "c.csv": "id,action,day\n1,a,\n".encode("utf-16"),
    "d.csv": b"id,id,action,day\n1,1,a,\n",
    "e.csv": "id,action,day\n1,a,\n".encode("utf-16-le"),
    "b.json": b'{"id": 2, "action": "\\ud83d"}\n{"id": "x"}\n',
    "c.json": b'{"id": 1e999999}',
    "d.json": b'{"id": 3, "_deleted": true}',
    "e.json": b'{"id": 4, "day": "0000-00-00"}',
    "a.avro": b"Obj\x01" + b"\x00" * 100,
    "a.parquet": b"PAR1" + b"\x00" * 100 + b"PAR1",
    "a.txt": b"hello\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_file_keeps_no_other_waiting(name: str, landing: Landing) -> None:
    landing.put("0.json", row(1))
    landing.put(name, raw=STRANGE[name])
    landing.put("z.json", row(9))
    found = landing.store.receive("actions")
    assert found.waiting == 0 and {1, 9} <= set(landing.ids()) <= {1, 9, 2, 3, 4}
    assert found.bad >= 1 and len(landing.quarantined()) >= 1
    assert all(reason.isprintable() for _, _, reason in landing.quarantined())


def test_what_is_no_text_is_not_replayed_as_something_else(landing: Landing) -> None:
    landing.put("a.json", '{"id": 1, "action": "café"}'.encode("latin-1"))
    landing.store.receive("actions")
    assert landing.store.replay("actions").left == 1 and landing.ids() == []
    assert landing.store.replay("actions", lambda r: r["raw"].replace("\\xe9", "é")).rows == 1


def test_batches_are_bounded_by_what_they_take_in_memory(tmp_path: Path) -> None:
    landing = Landing(tmp_path, batch_bytes=1000)
    for n in range(4):
        landing.put(f"{n}.json.gz", *(row(n * 1000 + k) for k in range(200)))
    assert len(landing.store.receive("actions").commits) == 4
    assert len(landing.ids()) == 800


@pytest.mark.slow
def test_a_file_that_ends_its_reader_keeps_no_other_waiting(landing: Landing) -> None:
    killer(landing.put("2.orc", raw=b""))
    landing.put("1.json", row(1))
    landing.put("3.json", b"null\n", row(3))
    os.utime(landing.folder / "2.orc", (1, 1))
    found = landing.store.receive("actions")
    assert (found.files, found.rows, found.bad) == (3, 2, 2) and landing.ids() == [1, 3]
    [ends, null] = landing.quarantined()
    assert ends[:2] == ("2.orc", 0) and "crashes the process that reads it (SIG" in ends[2]
    assert null == ("3.json", 1, 'no object: expected {"column": value, ...}')
    again = landing.store.replay("actions")
    assert (again.files, again.left) == (1, 1)
    assert landing.store.receive("actions").bad == 1 and landing.states()["2.orc"] == "refused"
