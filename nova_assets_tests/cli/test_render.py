"""How sizes, moments, reads and values look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.cli import read, rendering
from nova_assets.model.reads import DeltaChain, EmptyRead, Snapshot, StagedBlockPlaceholder


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1024**2 - 1, "1.0 MiB"), (5 * 1024**4, "5.0 TiB"), (None, "–")],
)
def test_sizes(count: int | None, shown: str) -> None:
    assert rendering.format_bytes(count) == shown


def test_moments_are_in_utc() -> None:
    paris = timezone(timedelta(hours=2))
    assert rendering.format_time(datetime(2024, 6, 1, 1, 30, tzinfo=paris)) == "2024-05-31 23:30:00"
    assert rendering.format_iso_time(datetime(2024, 6, 1, 1, 30, tzinfo=UTC)) == "2024-06-01T01:30:00+00:00"
    assert rendering.format_time(None) == "never" and rendering.format_iso_time(None) is None


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (nova.Append(), "Append"),
        (nova.Upsert(key=["site", "block"], order_by="at"), "Upsert(site, block by at)"),
        (nova.Keyed("id", combine={"n": "sum", "seen": "max"}), "Keyed(id; sum n, max seen)"),
    ],
)
def test_merge_models(model: Any, shown: str) -> None:
    assert rendering.format_merge_model(model) == shown


def test_a_long_chain_is_named_by_its_ends_on_a_terminal_and_whole_in_a_pipe() -> None:
    deltas = tuple(StagedBlockPlaceholder(str(n), "delta") for n in range(9))
    chain = DeltaChain("orders", 0, 9, deltas, None, nova.Append())
    assert rendering.format_read(chain, show_all_blocks=False) == "Δ(staged) · (7 more) · Δ(staged)"
    assert rendering.format_read(chain, show_all_blocks=True).count("Δ") == 9
    snapshot = Snapshot("orders", 9, (StagedBlockPlaceholder("b", "base"),), deltas, None, nova.Append())
    assert rendering.format_read(snapshot, show_all_blocks=False).startswith("B(staged) ⊕ Δ(staged) ⊕ (7 more)")


def test_an_old_read_of_a_binding_that_never_ran_is_not_called_nothing_new() -> None:
    assert (
        rendering.format_read(EmptyRead("orders", None, nova.Append(), is_change=False), show_all_blocks=True)
        == "no rows yet"
    )


def test_what_could_command_a_terminal_is_escaped() -> None:
    assert rendering.escape_unprintable("tea\n\x1b[2Jjam") == "tea\\n\\x1b[2Jjam"
    assert rendering.escape_unprintable("日本 ⊕ é") == "日本 ⊕ é"


@pytest.mark.parametrize(
    ("value", "plain", "text"),
    [
        (None, None, "null"),
        (True, True, "true"),
        (Decimal("1.10"), "1.10", "1.10"),
        (float("nan"), "NaN", "NaN"),
        (float("-inf"), "-Infinity", "-Infinity"),
        (b"\x00\xff", "AP8=", "AP8="),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00+00:00"),
        ([{"a": 1.5}, None], [{"a": 1.5}, None], '[{"a": 1.5}, null]'),
        ([("k", 1)], [["k", 1]], '[["k", 1]]'),
    ],
)
def test_values_as_json_and_as_text(value: Any, plain: Any, text: str) -> None:
    assert read.to_json_value(value) == plain
    assert read.format_cell(value) == text
