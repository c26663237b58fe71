"""Killed at every point on the way from an arrival to its acknowledgement: each file is taken exactly once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.sources.folder import FolderInbox
from nova_assets_tests.effort import long_except
from nova_assets_tests.forked import run_python
from nova_assets_tests.sources.landing import Landing, row

POINTS = [
    "receive.announced",
    "begin.before",
    "begin.after",
    "stage.recorded",
    "stage.recorded:2",
    "stage.written",
    "stage.written:2",
    "commit.before",
    "commit.inside",
    "commit.after",
    "receive.acknowledging",
    "receive.acknowledged",
]

WORKER = """
import json, sys
from pathlib import Path
import nova_assets as nova
home, source = Path(sys.argv[1]), nova.files(sys.argv[2], min_age="1s", batch_files=2)
channel = nova.Channel("actions", schema="id bigint NOT NULL, action string, day date", source=source)
project = nova.Project(channels=[channel])
with nova.open(project, f"sqlite:///{home}/c.db", home / "wh", lease=1, grace=1) as store:
    store.receive("actions")
"""


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", long_except(POINTS, "commit.inside", "commit.after"))
def test_killed_and_received_again(point: str, tmp_path: Path) -> None:
    landing = Landing(tmp_path, batch_files=2)
    for n in range(5):
        landing.put(f"{n}.json", row(n), b"{oops\n")

    kill(WORKER, tmp_path, landing, point)
    landing.store.receive("actions")
    assert landing.ids() == list(range(5))
    assert len(landing.quarantined()) == 5
    assert set(landing.states().values()) == {"taken"}
    assert landing.store.receive("actions").files == 0 and landing.ids() == list(range(5))


def kill(worker: str, home: Path, landing: Landing, point: str) -> None:
    """Have another process do it, which is killed there."""
    done = run_python(["-c", worker, str(home), str(landing.folder)], {"NOVA_CRASH_AT": point})
    assert done.returncode == -9, done.stderr


SEALER = """
import sys
from pathlib import Path
import nova_assets as nova
home, source = Path(sys.argv[1]), nova.files(sys.argv[2], min_age="1s", batch_files=2)
ddl, days = "id bigint NOT NULL, action string, day date", nova.daily("day", start="2024-01-01")
channel = nova.Channel("actions", schema=ddl, partitions=days, source=source, seal=nova.seal("day"))
project = nova.Project(channels=[channel])
with nova.open(project, f"sqlite:///{home}/c.db", home / "wh", lease=1, grace=1) as store:
    store.receive("actions")
    store.seal("actions")
"""


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", ["stage.recorded:4", "stage.written:4", "commit.inside:4", "seal.final", "seal.put"])
def test_killed_on_the_way_to_a_seal(point: str, tmp_path: Path) -> None:
    days = nova.daily("day", start="2024-01-01")
    landing = Landing(tmp_path, batch_files=2, partitions=days, seal=nova.seal("day"))
    for n in range(5):
        landing.put(f"{n}.json", row(n))

    kill(SEALER, tmp_path, landing, point)
    for _ in range(2):
        landing.store.receive("actions")
        landing.store.seal("actions")
    [sealed] = [s for s in landing.store.seals("actions") if s.group == "2024-01-01"]
    assert (sealed.version, sealed.state, sealed.rows, sealed.files) == (1, "sealed", 5, 1), "once, and all of it"
    assert landing.ids() == list(range(5))


def test_what_is_told_again_after_a_crash_is_not_taken_again(tmp_path: Path) -> None:
    """The commit is durable, the acknowledgement is not: a queue tells of the file once more."""
    landing = Landing(tmp_path)
    landing.put("a.json", row(1))
    source = landing.channel.source
    assert source is not None
    told = FolderInbox(source, landing.folder)
    told._changed_paths.add("a.json")
    acknowledged = told.acknowledge
    told.acknowledge = lambda notices: None  # type: ignore[method-assign]
    for _ in range(3):
        landing.store.receive("actions", look=False, inbox=told)
    assert landing.ids() == [1] and json.dumps(landing.states()) == '{"a.json": "taken"}'
    told.acknowledge = acknowledged  # type: ignore[method-assign]
    landing.store.receive("actions", look=False, inbox=told)
    assert told.poll(10) == []
