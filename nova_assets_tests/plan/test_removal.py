"""What a removal removes together and orphans, and why the trigger of a paused or removed binding does not fire."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.channel_state import ChannelState, ConsumerPosition, Cursor, RetentionState
from nova_assets.model.registered_definition import DefinitionKey, DefinitionStatus
from nova_assets.plan.due import why_trigger_is_off
from nova_assets.plan.removal import RemovalFacts, plan_removal, released_blocks
from nova_assets_tests.plan.histories import history

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def definition(reads: str, writes: str, when: str | None, workflowette: str) -> dict[str, Any]:
    task = {"name": "t", "consumes": [{"port": reads, "mode": "new"}], "produces": [{"port": writes, "kind": "delta"}]}
    return {"workflowette": workflowette, "tasks": [task], "channels": {reads: reads, writes: writes}, "when": when}


BINDINGS = {
    "clean": definition("raw", "clean", "on_data(raw, rows=3)", "clean"),
    "clean_eu": definition("raw_eu", "clean_eu", "on_data(raw_eu)", "clean"),
    "count": definition("clean", "counts", "after(clean, succeeded) & on_data(other, clean)", "count"),
}


def orphans(kind: Any, name: str, **facts: Any) -> dict[str, list[str]]:
    """Kind of orphan -> its names."""
    found: dict[str, list[str]] = {}
    for orphan in plan_removal(DefinitionKey(kind, name), RemovalFacts(BINDINGS, **facts)).orphans:
        found.setdefault(orphan.kind, []).append(orphan.name)
    return found


def test_a_channel_orphans_its_bindings_triggers_cursors_blocks_tables_and_files() -> None:
    cursors = [Cursor("count", "clean", 3, 5), Cursor("count", "raw", 1, 1)]
    state = ChannelState(nova.Channel("clean"), 5, None, rows=1200, bytes=2000, blocks=4)
    found = orphans(
        "channel", "clean", cursors=cursors, channels={"clean": state}, tables=["hive:exports/clean"], waiting_files=2
    )
    assert found == {
        "writer": ["clean"],
        "reader": ["count"],
        "trigger": ["count"],
        "cursor": ["count"],
        "blocks": ["clean"],
        "table": ["hive:exports/clean"],
        "arrivals": ["clean"],
    }
    assert orphans("channel", "other") == {"trigger": ["count"]}
    assert orphans("channel", "nobody_uses_it") == {}


def test_a_binding_orphans_what_only_it_writes_and_the_cascades_behind_it() -> None:
    cursors = [
        Cursor("clean", "raw", 2, 5, "day=1"),
        Cursor("clean", "raw", 1, 5, "day=2"),
        Cursor("count", "raw", 5, 5),
    ]
    plan = plan_removal(DefinitionKey("binding", "clean"), RemovalFacts(BINDINGS, cursors))
    assert [(o.kind, o.name) for o in plan.orphans] == [("channel", "clean"), ("trigger", "count"), ("cursor", "clean")]
    assert plan.orphans[-1].detail == "it has read raw up to 1 of 5, and 1 other partition"
    assert orphans("trigger", "clean") == {"trigger": ["clean"]}


def test_a_workflowette_takes_all_its_bindings_with_it() -> None:
    plan = plan_removal(DefinitionKey("workflowette", "clean"), RemovalFacts(BINDINGS))
    assert [str(k) for k in plan.removed] == ["workflowette clean", "binding clean", "binding clean_eu"]
    assert [o.name for o in plan.orphans if o.kind == "channel"] == ["clean", "clean_eu"]


def test_only_blocks_that_nobody_else_holds_are_released() -> None:
    lagging, ahead = ConsumerPosition("clean for day=1", 1, has_run=True), ConsumerPosition("count", 2, has_run=True)
    state = RetentionState(history("d1 d2 d3 c3 d4"), (lagging, ahead))
    assert [b.id for b in released_blocks(state, ["clean"])] == ["d2"]
    assert released_blocks(state, ["clean_up"]) == [], "another binding whose name begins alike"
    assert [b.id for b in released_blocks(state, ["clean", "count"])] == ["d2", "d3"]


@pytest.mark.parametrize(
    "key", [("binding", "again"), ("trigger", "again"), ("workflowette", "copy"), ("channel", "target")]
)
def test_a_trigger_is_off_if_anything_that_it_needs_is(key: tuple[Any, str]) -> None:
    source, target = nova.Channel("source"), nova.Channel("target")
    task = nova.task(name="t", consumes=nova.new(source), produces=nova.delta(target))(lambda source: source)
    binding = nova.bind(nova.Workflowette("copy", [task]), name="again", when=nova.on_data(source))
    of = DefinitionKey(*key)
    paused = DefinitionStatus(of, paused_at=NOW, paused_by="ann")
    removed = DefinitionStatus(of, removed_at=NOW, removed_by="ann")
    assert why_trigger_is_off(binding, {}) == ""
    assert why_trigger_is_off(binding, {of: paused}) == (
        f"{of} is paused by ann at 2024-01-01 00:00:00 UTC: nova resume {of}"
    )
    assert why_trigger_is_off(binding, {of: removed}).endswith(f"nova remove {of} --undo")
    others = (DefinitionKey("channel", "source"), DefinitionKey("binding", "copy"))
    assert why_trigger_is_off(binding, {k: DefinitionStatus(k, NOW, "ann") for k in others}) == ""
