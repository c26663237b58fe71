"""The random histories can fail: each of these faults, planted, is found within some histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nova_assets_tests.effort import EXHAUSTIVE
from nova_assets_tests.fuzz.play import play
from nova_assets_tests.fuzz.values import BUCKETED_TYPES, KEY_TYPES, TYPES, ColumnType

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

HISTORIES = 60
STEPS = 40

Plant = Callable[[pytest.MonkeyPatch], None]


def compacted_blocks_take_the_newest_schema(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.plan.compaction._written_schema", lambda compact, track, history: history.schema)


def sums_overflow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.execution.staging.check_no_sum_overflow", lambda *arguments: None)


def zeros_of_two_signs_are_two_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.engine.write.block_target.columns_to_canonicalize", lambda schema, names: ())
    patch.setattr("nova_assets.engine.write.key_checks.canonical_value", lambda value: value)


def deltas_are_chained_out_of_order(patch: pytest.MonkeyPatch) -> None:
    from nova_assets.plan import modes

    in_order = modes._sort_by_number
    patch.setattr(modes, "_sort_by_number", lambda deltas: tuple(reversed(in_order(deltas))))


def renames_to_names_in_use_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "nova_assets.model.schema_evolution._renames_to_make",
        lambda current, renamed, registered: ([], {n: o for n, o in renamed.items() if n not in current}),
    )


def partitions_of_a_filled_channel_may_change(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.catalog.definitions.check_partitions_keep_names", lambda *arguments: None)


def partitions_are_named_as_they_are_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.model.partitions.value_text", lambda column, value, schema: str(value))


def changes_of_some_columns_lose_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "nova_assets.engine.tasks.frames.SparkFrames.select", lambda self, frame, columns: frame.select(list(columns))
    )


def changed_models_take_effect_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nova_assets.plan.required_base.has_new_merge_model", lambda history: False)


def one_row_of_each_new_key_is_compared(patch: pytest.MonkeyPatch) -> None:
    from nova_assets.engine.read.spark_diff import diff_snapshots

    def diff(old: Any, new: Any, model: Any, *, may_repeat_old_keys: bool) -> Any:
        return diff_snapshots(old.dropDuplicates(list(model.key)) if may_repeat_old_keys else old, new, model)

    patch.setattr("nova_assets.engine.read.spark_reader.diff_snapshots", diff)


@pytest.mark.parametrize(
    ("plant", "keys", "first_seed"),
    [
        (compacted_blocks_take_the_newest_schema, KEY_TYPES, 19),
        (renames_to_names_in_use_are_ignored, BUCKETED_TYPES, 2),
        (partitions_of_a_filled_channel_may_change, BUCKETED_TYPES, 0),
        (partitions_are_named_as_they_are_written, BUCKETED_TYPES, 2),
        (changes_of_some_columns_lose_deletions, BUCKETED_TYPES, 0),
        (changed_models_take_effect_at_once, BUCKETED_TYPES, 0),
        pytest.param(one_row_of_each_new_key_is_compared, BUCKETED_TYPES, 9503, marks=EXHAUSTIVE),
        pytest.param(sums_overflow, BUCKETED_TYPES, 0, marks=EXHAUSTIVE),
        pytest.param(zeros_of_two_signs_are_two_keys, [TYPES["float"], TYPES["double"]], 8, marks=EXHAUSTIVE),
        pytest.param(deltas_are_chained_out_of_order, KEY_TYPES, 0, marks=EXHAUSTIVE),
    ],
)
def test_a_planted_fault_is_found(
    plant: Plant, keys: Sequence[ColumnType], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``first_seed`` stands shortly before the first history that finds it, for time is short."""
    plant(monkeypatch)
    findings: Any = (
        play(seed, STEPS, shrink=False, possible_keys=keys) for seed in range(first_seed, first_seed + HISTORIES)
    )
    assert any(f is not None for f in findings)
