"""Names and sizes of the files of blocks, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nova_assets as nova
from nova_assets.cli.main import cli

PRICES = nova.Channel("prices", merge=nova.Upsert(key="k"), schema="k bigint, note string")


def no_spark() -> Any:
    raise AssertionError("this needs no Spark")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[nova.Store]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=no_spark) as opened:
        opened.register(PRICES)
        yield opened


def files(store: nova.Store) -> list[str]:
    return [f.path for i in store.timeline("prices") for b in i.blocks for f in b.manifest.files]


def test_no_two_blocks_share_a_name_and_users_see_none(store: nova.Store, tmp_path: Path) -> None:
    for _ in range(5):
        store.insert("prices", [{"k": 1, "note": "the same row"}])
    names = files(store)
    assert len(names) == len({Path(name).parent for name in names}) == 5
    deployment = ["--catalog", f"sqlite:///{tmp_path}/c.db", "--warehouse", str(tmp_path / "wh")]
    for command in (["timeline", "prices"], ["channels"], ["read", "prices"]):
        shown = CliRunner().invoke(cli, [*command, *deployment])
        assert shown.exit_code == 0, shown.output
        assert not any(Path(name).parent.name in shown.output for name in names)


def test_a_compacted_channel_whose_rows_were_updated_takes_less_space(store: nova.Store, tmp_path: Path) -> None:
    def on_disk() -> int:
        return sum(f.stat().st_size for f in (tmp_path / "wh").rglob("*.parquet"))

    for n in range(8):
        store.insert("prices", [{"k": k, "note": f"{n} {k} {k * n % 7919}"} for k in range(2_000)])
    before, rows = on_disk(), store.read("prices").to_arrow().sort_by("k")
    store.insert("prices", [{"k": k, "note": "", "_deleted": True} for k in range(1_000)])
    store.compact("prices")
    store.collect_garbage("prices")
    store._retention.deletion_delay = 0.0
    assert store.delete_collected() == 9
    assert on_disk() < before / 8
    assert store.read("prices").to_arrow().sort_by("k").equals(rows.slice(1_000))
