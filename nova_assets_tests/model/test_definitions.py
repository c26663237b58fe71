"""Definitions are judged whole, and each mistake is told in words that say what to do."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.model.merge import MergeModel
from nova_assets.model.trigger import Trigger

a = nova.Channel("a", schema="k bigint, v string")
b = nova.Channel("b", merge=nova.Upsert(key="k"))
c = nova.Channel("c")


def passing(**edges: Any) -> nova.Task:
    """A task whose function takes whatever its edges are called."""
    return nova.task(name=edges.pop("name", "t"), **edges)(lambda **frames: None)


def project_of(*tasks: nova.Task, **bind: Any) -> nova.Project:
    return nova.Project([nova.bind(nova.Workflowette("w", list(tasks)), **bind)])


def merge_frames(base: Any, delta: Any) -> Any:
    return base + delta


def refused(message: str) -> Any:
    return pytest.raises(nova.DefinitionError, match=message)


def test_r8_old_is_legal_only_beside_new_on_the_same_channel() -> None:
    with refused(r"consumes old\(a\) without new\(a\) beside it \(R8\)"):
        project_of(passing(consumes=nova.old(a), produces=nova.delta(c)))
    with refused(r"old\(a\) without new\(a\)"):
        project_of(passing(consumes=[nova.old(a), nova.new(b)], produces=nova.delta(c)))
    project_of(passing(consumes=[nova.old(a, as_="before"), nova.new(a)], produces=nova.delta(c)))


def test_r5_a_new_reader_of_a_written_port_comes_after_its_single_writer() -> None:
    with refused(r"consumes new\(c\) and writes it"):
        project_of(passing(consumes=nova.new(c), produces=nova.delta(c)))
    project_of(passing(consumes=nova.all(c), produces=nova.delta(c)))


def test_r5_a_port_has_one_writer() -> None:
    with refused("port 'c' is written by one and two"):
        project_of(
            passing(name="one", consumes=nova.new(a), produces=nova.delta(c)),
            passing(name="two", consumes=nova.new(a), produces=nova.delta(c)),
        )


def test_a_cycle_of_tasks_is_refused_by_name() -> None:
    with refused("the tasks form a cycle: .*one.*two|the tasks form a cycle: .*two.*one"):
        project_of(
            passing(name="one", consumes=nova.all(b), produces=nova.delta(c)),
            passing(name="two", consumes=nova.all(c), produces=nova.delta(b)),
        )


def test_a_cycle_of_bindings_is_refused_by_name() -> None:
    there = nova.bind(nova.Workflowette("there", [passing(consumes=nova.new(a), produces=nova.delta(c))]))
    back = nova.bind(nova.Workflowette("back", [passing(consumes=nova.new(c), produces=nova.delta(a))]))
    with refused("the bindings form a cycle: "):
        nova.Project([there, back])


def test_two_bindings_writing_one_channel_are_refused_by_name() -> None:
    one = nova.Workflowette("one", [passing(consumes=nova.new(a), produces=nova.delta(c))])
    with refused("channel 'c' is written by the bindings 'one' and 'two'"):
        nova.Project([nova.bind(one), nova.bind(one, name="two")])


def test_an_unbound_required_port_is_refused() -> None:
    with refused("port 'x', which task 't' reads, has no channel and no task writes it"):
        project_of(passing(consumes=nova.new("x"), produces=nova.delta(c)))
    project_of(passing(consumes=nova.new("x"), produces=nova.delta(c)), channels={"x": a})


def test_an_output_that_nobody_reads_or_keeps_is_refused() -> None:
    with refused("port 'x', which task 't' writes, has no channel and no task reads it"):
        project_of(passing(consumes=nova.new(a), produces=nova.delta("x")))


def test_a_private_port_keeps_no_history() -> None:
    with refused(r"consumes changes\(x\) of a private port"):
        project_of(
            passing(name="one", consumes=nova.new(a), produces=nova.delta("x")),
            passing(name="two", consumes=nova.changes("x"), produces=nova.delta(c)),
        )


def test_all_problems_come_at_once() -> None:
    with pytest.raises(nova.DefinitionError) as met:
        nova.Project(
            [
                nova.bind(
                    nova.Workflowette("w", [passing(consumes=nova.old(a), produces=nova.delta(c))]),
                    when=nova.on_data("nowhere"),
                ),
                nova.bind(
                    nova.Workflowette("v", [passing(consumes=nova.new("x"), produces=nova.delta(c))]),
                    when=nova.after("nobody"),
                ),
            ]
        )
    text = str(met.value)
    for part in (
        "R8",
        "port 'x'",
        "written by the bindings",
        "'nowhere', which is no channel",
        "'nobody', which is no binding",
    ):
        assert part in text, text
    assert len(met.value.problems) == 5


def test_a_function_must_take_its_inputs_by_name() -> None:
    def wrong(articles: Any) -> None: ...

    with refused("no parameter 'a' for the input of that name.*parameter 'articles' has no input|parameter 'articles'"):
        project_of(nova.task(consumes=nova.new(a), produces=nova.delta(c))(wrong))
    project_of(nova.task(consumes=nova.new(a, as_="articles"), produces=nova.delta(c))(wrong))


def test_matching_needs_a_key_and_another_input() -> None:
    with refused("takes the keys of 'zzz', which is no input"):
        project_of(passing(consumes=nova.matching(b, keys_of="zzz"), produces=nova.delta(c)))
    with refused("channel 'a' has no key; name the columns with on="):
        project_of(passing(consumes=[nova.new(b), nova.matching(a, keys_of=b)], produces=nova.delta(c)))


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "a/b", "x" * 129, None, 3])
def test_unusable_names(name: Any) -> None:
    with refused("unusable name"):
        nova.Channel(name)


def test_r18_lambdas_and_main_and_local_functions_are_refused() -> None:
    def local(base: Any, delta: Any) -> Any: ...

    with refused("it is a lambda"):
        nova.Custom(merge=lambda x, y: x, chain=merge_frames, diff=merge_frames)
    with refused("defined inside another function"):
        nova.Custom(merge=merge_frames, chain=local, diff=merge_frames)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(a, b): return a", script)
    with refused("__main__"):
        nova.Custom(merge=merge_frames, chain=merge_frames, diff=script["f"])


def test_r18_functions_are_recorded_by_name_and_version() -> None:
    model = nova.Custom(merge=merge_frames, chain=merge_frames, diff=merge_frames, version="7")
    assert model.as_json()["merge"] == "nova_assets_tests.model.test_definitions:merge_frames@7"


@pytest.mark.parametrize(
    "model",
    [
        nova.Append(),
        nova.Upsert(key="k"),
        nova.Upsert(key=["k", "l"], order_by="t"),
        nova.Keyed(key="k", combine={"n": "sum", "t": "max"}),
        nova.Custom(merge=merge_frames, chain=merge_frames, diff=merge_frames),
    ],
)
def test_r18_models_survive_their_recording(model: Any) -> None:
    assert MergeModel.from_json(model.as_json()) == model


def test_r11_combine_takes_known_or_associative_functions() -> None:
    with refused("combine of column 'n' is unknown"):
        nova.Keyed(key="k", combine={"n": "avg"})
    with refused("not declared associative"):
        nova.Keyed(key="k", combine={"n": merge_frames})


def test_key_columns_must_be_in_the_schema() -> None:
    with refused("key column 'id' is not in the schema"):
        nova.Channel("x", merge=nova.Upsert(key="id"), schema="k bigint")
    with refused("'_deleted' is reserved for changes"):
        nova.Channel("x", merge=nova.Upsert(key="k"), schema="k bigint, _deleted boolean")


def test_r13_partition_columns_belong_to_the_key() -> None:
    with refused("partition column 'dt' must be part of the key"):
        nova.Channel(
            "x", merge=nova.Upsert(key="k"), schema="k bigint, dt date", partitions=nova.daily("dt", start="2024-01-01")
        )


def test_schemas_are_ddl_or_arrow() -> None:
    given = nova.Channel("x", schema=pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))]))
    assert str(given.schema) == "k bigint, t timestamp"
    assert (
        str(nova.Channel("x", schema="`52 week low` double, `Price/Earnings` decimal(5,2)").schema)
        == "`52 week low` double, `Price/Earnings` decimal(5,2)"
    )
    for wrong in ("k", "k bigint v int", "k frobnicate", ");drop table x", "k int, K int"):
        with refused("schema|there is no type .frobnicate."):
            nova.Channel("x", schema=wrong)


def test_a_task_is_still_its_plain_function() -> None:
    @nova.task(consumes=[nova.new(a), nova.all(b)], produces=nova.delta(c))
    def join(a: list[int], b: list[int]) -> list[int]:
        return a + b

    assert join([1], [2]) == [1, 2]
    assert join.name == "join"


def test_the_same_workflowette_bound_twice() -> None:
    w = nova.Workflowette("w", [passing(consumes=nova.new("source"), produces=nova.delta("sink"))])
    project = nova.Project(
        [
            nova.bind(w, channels={"source": a, "sink": b}),
            nova.bind(w, name="again", channels={"source": a, "sink": c}, params={"k": 4}),
        ]
    )
    assert [x.name for x in project.bindings] == ["w", "again"]
    assert project.writer("c").name == "again"  # type: ignore[union-attr]


def test_one_channel_on_two_ports_may_not_hide_a_dependency() -> None:
    w = nova.Workflowette(
        "w",
        [
            passing(name="r", consumes=nova.all("p"), produces=nova.delta("x")),
            passing(name="s", consumes=nova.new("x"), produces=nova.delta("q")),
        ],
    )
    with refused("ports 'p' and 'q' are both bound to channel 'a', and one of them is written"):
        nova.Project([nova.bind(w, channels={"p": a, "q": a})])


def test_a_check_does_not_decide_how_a_binding_is_partitioned_or_what_comes_before_it() -> None:
    day = nova.daily("day", start="2024-01-01")
    orders = nova.Channel("orders", schema="day date, v bigint", partitions=day)
    totals = nova.Channel("totals", schema="day date, v bigint", partitions=day)
    later = nova.Channel("later")
    task = passing(name="t", consumes=nova.new(a), produces=nova.delta(totals))
    check = nova.check([nova.new(totals), nova.all(orders), nova.all(later)], name="x")(lambda **frames: True)
    after = nova.bind(
        nova.Workflowette("after", [passing(name="u", consumes=nova.new(totals), produces=nova.delta(later))])
    )
    project = nova.Project([nova.bind(nova.Workflowette("w", [task], checks=[check])), after])
    bound = project.bindings[0]
    assert bound.dimensions == () and [c.name for c in bound.reads] == ["a"]
    assert [c.name for c in bound.channels_read_by_checks] == ["orders", "later"]


def test_checks_that_cannot_be() -> None:
    def looking(name: str, *edges: Any) -> nova.Check:
        return nova.check(list(edges), name=name)(lambda **frames: True)

    task = passing(name="t", consumes=nova.all(a), produces=[nova.delta(b), nova.delta("kept_by_nobody")])
    reader = passing(name="r", consumes=nova.all("kept_by_nobody"), produces=nova.delta(c))
    checks = {
        "consumes nothing": looking("x"),
        "consumes matching(b)": looking("x", nova.matching(b, keys_of="b")),
        "tests port 'a', which no task writes": looking("x", nova.all(a)),
        "tests the private port 'kept_by_nobody'": looking("x", nova.all("kept_by_nobody")),
        "consumes new(a), but no task does": looking("x", nova.all(b), nova.new(a)),
        "a check and a task are both called 't'": looking("t", nova.all(b)),
    }
    for problem, check in checks.items():
        with refused(re.escape(problem)):
            nova.Project([nova.bind(nova.Workflowette("w", [task, reader], checks=[check]))])
    wrong = nova.check(nova.all(b), name="x")(lambda other: True)
    with refused("no parameter 'b'"):
        nova.Project([nova.bind(nova.Workflowette("w", [task, reader], checks=[wrong]))])
    with refused("a task is called 'commit', which is the name of a step"):
        nova.Project([nova.bind(nova.Workflowette("w", [passing(name="commit", consumes=nova.all(a))]))])


@pytest.mark.parametrize("period", ["", "7", "d", "0d", "-1d", "7 years", None])
def test_unreadable_periods(period: Any) -> None:
    with refused("unreadable period"):
        nova.every(period)


def test_unreadable_crons_and_zones() -> None:
    with refused("unreadable expression"):
        nova.cron("every morning")
    with refused("expression without a time"):  # its sensor would fail, and all that is due beside it
        nova.cron("0 0 30 2 *")
    with refused("unknown zone"):
        nova.cron("0 6 * * *", tz="Mars/Olympus")
    with refused("unknown status"):
        nova.after("w", status="finished")  # type: ignore[arg-type]


def test_errors_say_what_was_found_expected_and_what_next() -> None:
    error = nova.SchemaMismatch("channel 'a' ...", found="x", expected="y", next="cast it", channel="a")
    assert (
        re.sub(r"\s+", " ", str(error)) == "[NOVA-SCHEMA-MISMATCH] channel 'a' ... found: x expected: y next: cast it"
    )
    assert error.channel == "a" and error.code == "NOVA-SCHEMA-MISMATCH" and isinstance(error, nova.NovaError)
    import pickle

    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_column_lineage_goes_through_private_ports_and_says_nothing_of_what_is_not_declared() -> None:
    from nova_assets.model.provenance import column_lineage

    clean = passing(name="clean", consumes=nova.new(a), produces=nova.delta("clean", columns={"k": "a.k", "v": "a.v"}))
    join = passing(
        name="join",
        consumes=[nova.all("clean"), nova.all(b, as_="rates")],
        produces=nova.delta(c, columns={"k": "clean.k", "total": ["clean.v", "rates.rate"], "other": "clean.unknown"}),
    )
    [binding] = project_of(clean, join).bindings
    assert column_lineage(binding) == {
        "c": {"k": (("a", "k"),), "total": (("a", "v"), ("b", "rate")), "other": ()},
    }
    with refused("column 'k' is made from 'b.k'; expected input.column, of a"):
        project_of(passing(consumes=nova.new(a), produces=nova.delta(c, columns={"k": "b.k"})))


def test_freshness_is_a_period_of_a_minute_at_least() -> None:
    assert nova.Channel("x", fresh_within="25h").fresh_within == "25h"
    for wrong in ("30s", "soon", 7):
        with refused("fresh_within is"):
            nova.Channel("x", fresh_within=wrong)  # type: ignore[arg-type]


def test_triggers_that_fire_each_other_are_refused_unless_that_is_meant() -> None:
    def pair(first: object, second: object) -> nova.Project:
        a, b, c, d = (nova.Channel(n, schema="k int") for n in "abcd")
        ab, cd = (
            passing(consumes=nova.new(a), produces=nova.delta(b)),
            passing(consumes=nova.new(c), produces=nova.delta(d)),
        )
        one = nova.bind(nova.Workflowette("one", [ab]), when=first)  # type: ignore[arg-type]
        return nova.Project([one, nova.bind(nova.Workflowette("two", [cd]), when=second)])  # type: ignore[arg-type]

    with refused("the triggers form an endless cycle: one → two → one|two → one → two"):
        pair(nova.after("two"), nova.after("one", status="failed") & nova.every("1h"))
    with refused("the triggers form an endless cycle: "):
        pair(nova.on_data("d"), nova.on_data("b"))
    with refused("the triggers form an endless cycle: one → one"):
        pair(nova.on_data("a") | nova.on_data("b"), None)
    with refused("one → one"):
        pair(nova.after("one", status="failed"), None)
    pair(nova.after("two", loop=True), nova.after("one"))
    pair(nova.on_data("b", loop=True), None)
    pair(nova.on_data("d"), nova.on_data("c"))


@pytest.mark.parametrize("asked", [{"rows": 0}, {"blocks": True}, {"bytes": 1.5}, {"older_than": "an hour"}])
def test_what_data_is_waited_for_is_checked(asked: dict[str, object]) -> None:
    with pytest.raises(nova.DefinitionError, match="on_data"):
        nova.on_data("a", **asked)  # type: ignore[arg-type]


class OnFullMoon(Trigger):
    """A trigger of the user's, which nothing would ever evaluate."""

    def __repr__(self) -> str:
        return "OnFullMoon()"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"backoff": "soon"}, "backoff is 'soon'"),
        ({"when": OnFullMoon()}, "when is OnFullMoon()"),
        ({"when": nova.every("1h") & OnFullMoon()}, "nova.after(...)"),
    ],
)
def test_the_policy_of_a_binding_is_checked(policy: dict[str, object], said: str) -> None:
    a, b = nova.Channel("a"), nova.Channel("b")
    task = passing(consumes=nova.new(a), produces=nova.delta(b))
    with refused(said):
        nova.Project([nova.bind(nova.Workflowette("w", [task]), **policy)])  # type: ignore[arg-type]
