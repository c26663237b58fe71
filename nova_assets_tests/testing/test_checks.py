"""The shipped checks refuse planted faults, each with the smallest input that shows it, and pass what is right."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.testing import check_incremental, check_laws
from nova_assets.testing.shrinking import shrink
from nova_assets_tests.effort import long_except
from nova_assets_tests.testing import faulty

pytestmark = pytest.mark.spark

FRAMES = [[{"k": 1, "v": 1}], [{"k": 1, "v": 5}, {"k": 2, "v": 3}], [{"k": 1, "v": -1}]]
WEIGHTED = [FRAMES[0], *([{**r, "w": float(n + r["k"])} for r in f] for n, f in enumerate(FRAMES[1:]))]
CHAIN, DIFF = r"chain\(chain\(d1, d2\), d3\)", r"merge\(B, diff\(B, C\)\) = C"
MERGE = r"merge\(merge\(B, d1\), d2\) = merge\(B, chain\(d1, d2\)\)"

MODELS: dict[str, tuple[nova.Custom, str, int]] = {
    "a chain that keeps the first": (faulty.custom(chain=faulty.chain_that_keeps_the_first), MERGE, 2),
    "a chain that keeps both": (faulty.custom(chain=faulty.chain_that_keeps_both), MERGE, 2),
    "a chain that drops deletions": (faulty.custom(chain=faulty.chain_that_drops_deletions), MERGE, 2),
    "a chain that forgets the first": (faulty.custom(chain=faulty.chain_that_forgets_the_first), MERGE, 1),
    "a merge that keeps the old": (faulty.custom(merge=faulty.merge_that_keeps_the_old), MERGE, 2),
    "a merge that forgets the base": (faulty.custom(merge=faulty.merge_that_forgets_the_base), MERGE, 1),
    "a merge that adds, a chain that does not": (faulty.custom(merge=faulty.merge_that_adds), MERGE, 2),
    "a diff without deletions": (faulty.custom(diff=faulty.diff_without_deletions), DIFF, 2),
    "a diff without changes": (faulty.custom(diff=faulty.diff_without_changes), DIFF, 2),
    "a diff the wrong way round": (faulty.custom(diff=faulty.diff_the_wrong_way_round), DIFF, 1),
}
WEIGHTED_MODELS: dict[str, Any] = {
    "a chain that averages": faulty.chain_that_averages,
    "a chain that counts its calls": faulty.chain_that_counts,
}


def rows_shown(error: pytest.ExceptionInfo[AssertionError], names: tuple[str, ...]) -> int:
    """How many rows the counter-example has."""
    lines = [line.strip() for line in str(error.value).splitlines()]
    return sum(line.count("{") for line in lines if line.startswith(tuple(f"{n} = " for n in names)))


@pytest.mark.parametrize("fault", MODELS)
def test_a_faulty_model_is_refused(fault: str, spark: Any) -> None:
    model, law, rows = MODELS[fault]
    with pytest.raises(AssertionError, match=f"{law}.*The smallest input that shows it") as met:
        check_laws(model, FRAMES, faulty.DDL, spark)
    assert rows_shown(met, ("B", "d1", "d2", "d3")) <= rows, met.value


@pytest.mark.parametrize("fault", WEIGHTED_MODELS)
def test_a_chain_that_is_not_associative_is_refused(fault: str, spark: Any) -> None:
    with pytest.raises(AssertionError, match=f"{CHAIN}.*The smallest input that shows it") as met:
        check_laws(faulty.weighted(WEIGHTED_MODELS[fault]), WEIGHTED, faulty.DDL, spark)
    assert rows_shown(met, ("d1", "d2", "d3")) <= 3, met.value


@pytest.mark.core
@pytest.mark.parametrize("function", [faulty.subtract, faulty.average, faulty.rounded_sum])
def test_a_function_that_is_not_associative_is_refused(function: Any, spark: Any) -> None:
    model = nova.Keyed(key="k", combine={"v": function})
    with pytest.raises(AssertionError, match=f"f = {function.__name__}.*'v'.*\n  a = 1, b = ") as met:
        check_laws(model, [[{"k": 1, "v": n}] for n in (1, 7, 8)], faulty.DDL, spark)
    assert "left" in str(met.value)


def test_a_model_that_is_right_passes(spark: Any) -> None:
    check_laws(faulty.custom(), FRAMES, faulty.DDL, spark)


def test_a_model_that_refuses_to_tell_a_change_keeps_the_laws_of_its_other_functions(spark: Any) -> None:
    """It is refused later, where a base is compared with real blocks, by its own error."""
    model = faulty.custom(diff=faulty.diff_that_refuses, chain=faulty.chain_that_keeps_both)
    with pytest.raises(AssertionError, match=MERGE):
        check_laws(model, FRAMES, faulty.DDL, spark)


# tasks

S = nova.Channel("s", schema=faulty.DDL)
ONE = {"s": [[{"k": 1, "v": 1}], [{"k": 1, "v": 2}]]}


def counts_of_a_batch(s: Any) -> Any:
    return s.groupBy("k").agg(F.count("*").alias("n"))


def distinct_of_a_batch(s: Any) -> Any:
    return s.select("k").distinct()


def first_row_of_a_batch(s: Any) -> Any:
    return s.orderBy("v").limit(1)


def share_of_a_batch(s: Any) -> Any:
    total = s.agg(F.sum("v").alias("total"))
    return s.crossJoin(total).select("k", (F.col("v") / F.col("total")).alias("share"))


def one_row_a_run(s: Any) -> Any:
    return s.agg(F.count("*").alias("n"))


UPSERT = nova.Channel("o", merge=nova.Upsert(key="k"))
BAG = nova.Channel("o")

TASKS: dict[str, tuple[Any, nova.Channel, dict[str, Any], str]] = {
    "counts that overwrite": (counts_of_a_batch, UPSERT, ONE, "batch by batch"),
    "the first row of a batch": (first_row_of_a_batch, BAG, ONE, "batch by batch"),
    "a share of a batch": (share_of_a_batch, BAG, ONE, "batch by batch"),
    "a row for each run": (one_row_a_run, BAG, {"s": [[{"k": 1, "v": 1}]]}, "a run without anything new"),
    "keys that straddle no batch": (
        distinct_of_a_batch,
        BAG,
        {"s": [[{"k": 1, "v": 1}, {"k": 1, "v": 2}]]},
        "row by row",
    ),
}


@pytest.mark.parametrize(
    "fault", long_except(TASKS, "counts that overwrite", "a row for each run", "keys that straddle no batch")
)
def test_a_faulty_task_is_refused(fault: str, spark: Any) -> None:
    function, output, batches, schedule = TASKS[fault]
    task = nova.task(consumes=nova.new(S), produces=nova.delta(output))(function)
    with pytest.raises(AssertionError, match=rf"channel 'o': .*{schedule}.*\(R12\)") as met:
        check_incremental(nova.bind(nova.Workflowette("w", [task])), batches, spark)
    said = str(met.value)
    assert "The smallest input that shows it" in said and "all at once gives" in said
    assert said.count("s <- [{") <= 2 and said.count("  s <- ") == said.count("s <- [{")


def test_the_counter_example_has_no_run_that_is_not_needed(spark: Any) -> None:
    task = nova.task(consumes=nova.new(S), produces=nova.delta(UPSERT))(counts_of_a_batch)
    batches = {"s": [[{"k": 9, "v": 1}], [{"k": 8, "v": 1}], [{"k": 1, "v": 1}], [{"k": 1, "v": 2}]]}
    with pytest.raises(AssertionError, match="batch by batch") as met:
        check_incremental(nova.bind(nova.Workflowette("w", [task])), batches, spark)
    arrivals_and_runs = [line.split("{")[0].strip(" [") for line in str(met.value).splitlines()[1:-3]]
    assert arrivals_and_runs == ["s <-", "run w", "s <-", "run w"], str(met.value)


def test_an_order_of_runs_between_two_channels_is_tried(spark: Any) -> None:
    """A join of what is new with all of the other side: right only if both arrive before the run."""
    left, right = nova.Channel("a", schema="k bigint"), nova.Channel("b", schema="k bigint")

    def join_new_with_all(a: Any, b: Any) -> Any:
        return a.join(b, "k")

    task = nova.task(consumes=[nova.new(left), nova.all(right)], produces=nova.delta(BAG))(join_new_with_all)
    with pytest.raises(AssertionError, match="a run after each arrival of one channel") as met:
        check_incremental(nova.bind(nova.Workflowette("w", [task])), {"a": [[{"k": 1}]], "b": [[{"k": 1}]]}, spark)
    assert "  a <- [{'k': 1}]\n  run w\n  b <- [{'k': 1}]\n  run w\n  gives []" in str(met.value)


def test_a_task_that_is_right_passes(spark: Any) -> None:
    added = nova.Channel("o", merge=nova.Keyed(key="k", combine={"n": "sum"}))
    task = nova.task(consumes=nova.new(S), produces=nova.delta(added))(counts_of_a_batch)
    check_incremental(nova.bind(nova.Workflowette("w", [task])), ONE, spark, schedules=0)


@pytest.mark.core
def test_shrinking_leaves_no_row_that_is_not_needed() -> None:
    found = shrink([[1, 2, 3], [4, 5], [6]], lambda lists: 2 in lists[0] and 6 in lists[2])
    assert found == [[2], [], [6]]
