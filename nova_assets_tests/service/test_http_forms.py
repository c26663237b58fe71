"""The form of the service's answers: clients of other versions and in other languages read it.

``http_forms.json`` is the form as it was when this test was written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nova_assets as nova
from nova_assets.model.block import Block
from nova_assets.model.channel_state import ChannelState, CollectedGarbage, Cursor, PartitionState
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution, Firing, Pin
from nova_assets.model.file_source import ExternalFolder
from nova_assets.model.registered_definition import (
    BindingInfo,
    DefinitionDescription,
    DefinitionKey,
    DefinitionStatus,
    DefinitionVersion,
    TriggerInfo,
    WorkflowetteInfo,
)
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import Instant, RolledBackBlock, TimelinePosition
from nova_assets.plan.compaction import PlannedCompaction
from nova_assets.plan.removal import Orphan
from nova_assets.service.routes.definitions import (
    BindingShape,
    DefinitionKeyShape,
    DefinitionShape,
    DefinitionStateShape,
    OrphanShape,
    TriggerShape,
    WorkflowetteShape,
)
from nova_assets.service.shapes import (
    BlockShape,
    ChannelShape,
    CollectedShape,
    CommitShape,
    CompactShape,
    CursorShape,
    ExecutionShape,
    FiringShape,
    InstantShape,
    PartitionShape,
)
from nova_assets_tests.model.test_stored_forms import MANIFEST, MERGES, SCHEMA

FORMS = Path(__file__).with_name("http_forms.json")

AT = datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
LATER = datetime(2024, 1, 2, 4, tzinfo=UTC)
BLOCK = Block(
    "b1",
    "orders",
    "day=2024-01-01",
    "delta",
    4,
    5,
    replace(MANIFEST, merge=None),
    nova.Append(),
    "insert",
    "c1",
    MERGES["upsert"],
)
BASE = Block("b2", "orders", "", "base", 5, 5, replace(MANIFEST, merge=None, layout=None), nova.Append())
BARE = replace(BASE, manifest=replace(BASE.manifest, external_folder=ExternalFolder("s3://lake/x", "7")))
COMMIT = Commit("c1", "e1", "sums", AT, {"orders": 5}, (BLOCK, BARE), {"orders": 5, "other": 2}, details={"n": [1.5]})
CHANNEL = nova.Channel("orders", schema="id int, day date", partitions=[nova.daily("day", start="2024-01-01")])
STATE = ChannelState(
    CHANNEL,
    5,
    SCHEMA,
    9,
    99,
    2,
    AT,
    True,
    4,
    "7d",
    {"day": "90d"},
    LATER,
    seal=Sealing("day", "1h"),
    position=TimelinePosition(3, "a" * 64),
)
EMPTY_STATE = ChannelState(nova.Channel("later"), 0, None)
EXECUTION = Execution(
    "e1",
    "sums",
    "day=2024-01-01",
    "failed",
    3,
    {"zebra": Pin("zebra", 7), "orders": Pin("orders", 5, 2, "day=2024-01-01", True)},
    "",
    AT,
    LATER,
    LATER,
    "it failed",
    "c1",
    "r1",
    "f1",
    "commit",
    4,
)
PAUSED = DefinitionStatus(DefinitionKey("binding", "sums"), AT, "ann@host", None, None)
ACTIVE = DefinitionStatus(DefinitionKey("channel", "orders"), None, None, None, None)
VERSION = DefinitionVersion(PAUSED.key, 2, {"name": "sums"}, AT, "ann@host", ("tasks",))
FIRING = Firing("f1", "sums", 2, {"orders": 5}, 1, "requested", AT, "day=2024-01-01", "5 rows")


class Answer(NamedTuple):
    """An object, what writes it, and what a client reads from that; None if no client reads it."""

    value: Any
    write: Callable[[Any], Any]
    read: Callable[[Any], Any] | None = None


ANSWERS: Mapping[str, Answer] = {
    "delta": Answer(BLOCK, BlockShape.of, Block.from_json),
    "base": Answer(BARE, BlockShape.of, Block.from_json),
    "block without content": Answer(BLOCK, lambda b: BlockShape.of(b).without_content()),
    "commit": Answer(COMMIT, CommitShape.of, Commit.from_json),
    "repeated commit": Answer(
        replace(COMMIT, repeated=True, binding=None, blocks=()),
        CommitShape.of,
        Commit.from_json,
    ),
    "channel": Answer(STATE, ChannelShape.of, ChannelState.from_json),
    "empty channel": Answer(EMPTY_STATE, ChannelShape.of, ChannelState.from_json),
    "partition": Answer(
        PartitionState("day=2024-01-01", 5, 9, 99, 2, 4),
        PartitionShape.of,
        PartitionState.from_json,
    ),
    "cursor": Answer(
        Cursor("sums", "orders", 2, 9, "day=2024-01-01", "", AT, 3),
        CursorShape.of,
        Cursor.from_json,
    ),
    "execution": Answer(EXECUTION, ExecutionShape.of_execution, Execution.from_json),
    "insert": Answer(
        Execution("e2", None, "", "running", 1, {}, "", AT, LATER),
        ExecutionShape.of_execution,
        Execution.from_json,
    ),
    "firing": Answer(FIRING, FiringShape.of, Firing.from_json),
    "compaction": Answer(
        PlannedCompaction("day=2024-01-01", 5, "3 deltas", 2, True),
        CompactShape.of,
        PlannedCompaction.from_json,
    ),
    "collected garbage": Answer(
        CollectedGarbage("orders", (BARE,), "c2"),
        CollectedShape.of,
        CollectedGarbage.from_json,
    ),
    "instant": Answer(
        Instant(
            "rollback",
            "complete",
            None,
            AT,
            "c3",
            "sums",
            (BARE,),
            {"cost": {"seconds": 0.5}},
            (RolledBackBlock("b3", "day=2024-01-01", "blocks/b3", ("a", "b")),),
        ),
        InstantShape.of,
        Instant.from_json,
    ),
    "binding": Answer(
        BindingInfo("sums", "adding", ("orders",), "on_data(orders)", PAUSED, "it is paused", True, 2, {"orders": 5}),
        BindingShape.from_info,
    ),
    "workflowette": Answer(
        WorkflowetteInfo("adding", ("add",), ("orders", "sums"), ("sums",), ("orders",), ACTIVE, True),
        WorkflowetteShape.from_info,
    ),
    "trigger": Answer(
        TriggerInfo("sums", "on_data(orders)", ("orders",), PAUSED, "it is paused", True, FIRING),
        TriggerShape.from_info,
    ),
    "trigger that never fired": Answer(
        TriggerInfo("sums", "on_data(orders)", ("orders",), ACTIVE, "", False), TriggerShape.from_info
    ),
    "description": Answer(
        DefinitionDescription(
            PAUSED.key,
            PAUSED,
            ("orders",),
            {"reads": ("orders",)},
            (VERSION,),
            (EXECUTION, replace(EXECUTION, id="e3")),
        ),
        DefinitionShape.from_description,
    ),
    "status": Answer(PAUSED, DefinitionStateShape.from_status),
    "key": Answer(PAUSED.key, DefinitionKeyShape.from_key),
    "orphan": Answer(Orphan("blocks", "orders", "2 blocks"), lambda o: OrphanShape.from_orphan(o, True)),
    "hidden orphan": Answer(Orphan("blocks", "orders", "2 blocks"), lambda o: OrphanShape.from_orphan(o, False)),
}


def http_form(answer: Answer) -> Any:
    """The body of an answer, as JSON has it."""
    return json.loads(answer.write(answer.value).model_dump_json())


@pytest.mark.core
@pytest.mark.parametrize("name", ANSWERS)
def test_the_http_form_stays(name: str) -> None:
    form = json.loads(FORMS.read_text())[name]
    answer = ANSWERS[name]
    assert http_form(answer) == form
    if answer.read is not None:
        assert answer.read(form) == answer.value
