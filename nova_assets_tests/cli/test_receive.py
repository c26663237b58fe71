"""``nova receive``, ``arrivals`` and ``replay``: files that arrive for a channel, without starting Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import nova_assets
from nova_assets.store.arrival_watch import WatchedInboxes, find_channels_to_receive
from nova_assets_tests.cli.conftest import Nova

PROJECT = """
import nova_assets as nova

orders = nova.Channel(
    "orders", schema="id bigint, price double", source=nova.files("landing", format="json", min_age="1s")
)
days = nova.Channel(
    "days",
    schema="id bigint, dt date",
    partitions=nova.daily("dt", start="2024-01-01"),
    source=nova.files("landing", min_age="1s"),
    seal=nova.seal("dt"),
)
project = nova.Project(channels=[orders, days, nova.Channel("by_hand", schema="id bigint")])
"""


@pytest.fixture(autouse=True)
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "landing").mkdir()
    (folder / "arriving.py").write_text(PROJECT)
    (folder / "pyproject.toml").write_text('[tool.nova]\nproject = "arriving:project"\n')
    monkeypatch.delitem(sys.modules, "arriving", raising=False)


def write_file(folder: Path, name: str, content: str) -> None:
    path = folder / "landing" / name
    path.write_text(content)
    os.utime(path, (time.time() - 60,) * 2)


def test_files_are_received_once_and_shown(nova: Nova, folder: Path) -> None:
    write_file(folder, "a.json", '{"id": 1, "price": 2.5}\n{"id": 2, "price": "dear"}\n')
    assert nova("receive", "orders", "--dry-run").out == "1 file would be ingested, 51 B\n  a.json\n"
    assert nova("arrivals", "orders").out == "orders: 0 waiting, 0 taken, 0 refused, 0 gone\n"
    assert nova("channels", "--json").json["channels"] == [], "looking changes nothing"
    output = nova("receive", "orders")
    assert output.code == 0, output.err
    first, why = output.out.splitlines()
    assert first == "orders: 1 row from 1 file, now at 1; 1 quarantined in orders_quarantine"
    assert why.startswith("  1 such as: column 'price'") and "dear" in why
    assert nova("receive", "orders").out == "no new files have arrived for orders\n"
    shown = nova("arrivals", "orders").out
    assert shown.startswith("orders: 0 waiting, 1 taken, 0 refused, 0 gone\n") and "a.json" in shown
    found = nova("arrivals", "orders", "--json").json
    assert (found["taken"], found["rows"], found["bad"]) == (1, 1, 1)
    assert [(a["file"], a["state"], a["rows"], a["bad"]) for a in found["arrivals"]] == [("a.json", "taken", 1, 1)]


def test_what_was_set_aside_is_mended_by_hand(nova: Nova, folder: Path) -> None:
    write_file(folder, "a.json", '{"id": 1}\n{"id": 2, "price": "dear"}\n')
    nova("receive", "orders")
    assert nova("replay", "orders").out == "orders: 0 rows ingested; 1 left in the quarantine\n"
    bad = nova("read", "orders_quarantine", "--json").json["rows"]
    (folder / "bad.jsonl").write_text("".join(json.dumps({**r, "raw": '{"id": 2, "price": 9}'}) + "\n" for r in bad))
    would = nova("replay", "orders", "--mended", folder / "bad.jsonl", "--dry-run").out
    assert would == "orders: 1 row would be ingested; 0 left in the quarantine\n"
    done = nova("replay", "orders", "--mended", folder / "bad.jsonl", "--json")
    assert done.code == 0 and (done.json["rows"], done.json["left"]) == (1, 0)
    assert nova("read", "orders_quarantine", "--json").json["rows"] == []
    (folder / "bad.jsonl").write_text("{}\n")
    assert "line 1 is not a row of a quarantine" in nova("replay", "orders", "--mended", folder / "bad.jsonl").err


def test_days_are_sealed_and_shown(nova: Nova, folder: Path) -> None:
    write_file(folder, "a.json", '{"id": 1, "dt": "2024-01-01"}')
    assert nova("seals", "days").out == "No day or hour of days is sealed yet.\n"
    assert nova("seal", "days", "--dry-run").out.startswith("0 groups would be sealed\n  not ")
    nova("receive", "days")
    planned = nova("seal", "days", "--dry-run", "--json").json
    assert {"group": "2024-01-01", "version": 1} in planned["due"]
    assert [o["why"][:18] for o in planned["open"]] == ["its period ends at"]
    (sealed,) = nova("seal", "days", "--json").json["sealed"]
    assert (sealed["group"], sealed["rows"], sealed["files"], sealed["state"]) == ("2024-01-01", 1, 1, "sealed")
    assert nova("seal", "days").out == "All complete days or hours are sealed.\n"
    assert "2024-01-01" in nova("seals", "days").out and "after its end" in nova("seals", "days").out
    (listed,) = nova("seals", "days", "--json").json["seals"]
    ended = datetime(2024, 1, 2, tzinfo=UTC)
    assert listed["seconds_after_end"] == (datetime.fromisoformat(listed["at"]) - ended).total_seconds() > 0
    assert "has no seal=, which defines when" in nova("seal", "orders").err


def test_wrong_use_is_told(nova: Nova) -> None:
    assert "has no source" in nova("receive", "by_hand").err
    assert "no channel is called 'nothing'" in nova("receive", "nothing").err


def test_files_of_a_paused_channel_wait_until_it_is_resumed(nova: Nova, folder: Path) -> None:
    write_file(folder, "a.json", '{"id": 1, "price": 2.5}')
    nova("pause", "channel", "orders")
    with nova_assets.open() as store:
        inboxes = WatchedInboxes()
        assert "orders" not in find_channels_to_receive(store, inboxes).to_list
        store.resume("channel", "orders")
        assert "orders" in find_channels_to_receive(store, inboxes).to_list


@pytest.mark.slow
def test_it_follows_until_it_is_interrupted(nova: Nova, folder: Path) -> None:
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "nova_assets.cli", "receive", "orders", "--follow", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}, **pipes) as process:
        assert process.stderr is not None and process.stdout is not None
        try:
            write_file(folder, "a.json", '{"id": 1}')
            first = json.loads(process.stderr.readline())
            partial = folder / "landing" / "_b.json"
            partial.write_text('{"id": 2}')
            partial.rename(folder / "landing" / "b.json")
            second = json.loads(process.stderr.readline())
            process.send_signal(signal.SIGINT)
            last = json.loads(process.stdout.read())
        finally:
            process.kill()
    assert (first["rows"], second["rows"], last["rows"]) == (1, 1, 2)
    assert process.returncode == 0
