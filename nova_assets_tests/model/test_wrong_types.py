"""Whatever a definition is given, it is accepted or refused with a ``DefinitionError``: never a raw exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nova_assets as nova

channel = nova.Channel("c", schema="k bigint, v bigint, day date")
upsert = nova.Channel("u", merge=nova.Upsert(key="k"), schema="k bigint, v bigint")


@nova.task(consumes=nova.new(channel), produces=nova.delta(upsert))
def copy(c: Any) -> Any:
    return c


workflowette = nova.Workflowette("w", [copy])
binding = nova.bind(workflowette)

WRONG: list[Any] = [
    None, 5, -1, 2.5, True, "", "text", b"bytes", [], [None], [5], ["text"], {}, {"a": 5}, {5: "a"}, object(), int,
    print, channel, [channel], workflowette, [workflowette], binding, [binding], copy, [copy], nova.Append(),
    nova.daily("day", "2024-01-01"), nova.new(channel), [nova.delta(upsert)], nova.every("5m"), nova.Compaction(),
]  # fmt: skip

CHANNEL = [
    "merge", "schema", "partitions", "on_schema_change", "cluster_by", "description", "owners", "group", "tags",
    "fresh_within", "retain", "compacting", "source", "external", "seal", "publish", "renamed",
]  # fmt: skip


def task_of(**how: Any) -> Any:
    edges = {"consumes": nova.new(channel), "produces": nova.delta(upsert), **how}
    return nova.Workflowette("x", [nova.task(**edges)(lambda c: c)])


DEFINITIONS: dict[str, Callable[[Any], Any]] = {
    "Project(bindings)": lambda x: nova.Project(x),
    "Project([binding])": lambda x: nova.Project([x]),
    "Project(channels)": lambda x: nova.Project(channels=x),
    "Project([channel])": lambda x: nova.Project(channels=[x]),
    "Workflowette(name)": lambda x: nova.Project([nova.bind(nova.Workflowette(x, [copy]))]),
    "Workflowette(tasks)": lambda x: nova.Project([nova.bind(nova.Workflowette("x", x))]),
    "Workflowette([task])": lambda x: nova.Project([nova.bind(nova.Workflowette("x", [x]))]),
    "Workflowette(checks)": lambda x: nova.Project([nova.bind(nova.Workflowette("x", [copy], checks=x))]),
    "Workflowette([check])": lambda x: nova.Project([nova.bind(nova.Workflowette("x", [copy], checks=[x]))]),
    "bind(workflowette)": lambda x: nova.Project([nova.bind(x)]),
    **{
        f"bind({name})": lambda x, name=name: nova.Project([nova.bind(workflowette, **{name: x})])
        for name in ("name", "channels", "params", "when", "partitions", "attempts", "backoff")
    },
    **{
        f"task({name})": lambda x, name=name: nova.Project([nova.bind(task_of(name="t", **{name: x}))])
        for name in ("consumes", "produces", "retries", "retry_delay")
    },
    "check(consumes)": lambda x: nova.Project(
        [nova.bind(nova.Workflowette("x", [copy], checks=[nova.check(x)(lambda u: True)]))]
    ),
    "Channel(name)": lambda x: nova.Channel(x),
    **{f"Channel({name})": lambda x, name=name: nova.Channel("x", **{name: x}) for name in CHANNEL},
    **{
        f"Channel(keyed, {name})": lambda x, name=name: nova.Channel(
            "x", **{"merge": nova.Upsert(key="k"), "schema": "k bigint, day date", name: x}
        )
        for name in CHANNEL
    },
    "Upsert(key)": lambda x: nova.Channel("x", merge=nova.Upsert(key=x), schema="k bigint"),
    "Upsert(order_by)": lambda x: nova.Channel("x", merge=nova.Upsert(key="k", order_by=x), schema="k bigint"),
    "Keyed(combine)": lambda x: nova.Channel("x", merge=nova.Keyed(key="k", combine=x), schema="k bigint, v bigint"),
    "new": lambda x: nova.new(x),
    "new(as_)": lambda x: nova.new(channel, as_=x),
    "matching(keys_of)": lambda x: nova.matching(upsert, keys_of=x),
    "delta": lambda x: nova.delta(x),
    "delta(columns)": lambda x: task_of(name="t", produces=nova.delta(upsert, columns=x)),
    "daily(column)": lambda x: nova.daily(x, "2024-01-01"),
    "daily(start)": lambda x: nova.daily("day", x),
    "daily(tz)": lambda x: nova.daily("day", "2024-01-01", x),
    "daily(keep)": lambda x: nova.daily("day", "2024-01-01", keep=x),
    "static(values)": lambda x: nova.static("p", x),
    "dynamic": lambda x: nova.dynamic(x),
    "on_data": lambda x: nova.on_data(x),
    "on_data(older_than)": lambda x: nova.on_data("c", older_than=x),
    "every": lambda x: nova.every(x),
    "cron": lambda x: nova.cron(x),
    "cron(tz)": lambda x: nova.cron("0 6 * * *", tz=x),
    "after": lambda x: nova.after(x),
    "on_sealed": lambda x: nova.on_sealed(x),
}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_wrong_type_is_a_definition_error(definition: str) -> None:
    raw: dict[str, str] = {}
    for value in WRONG:
        try:
            made = DEFINITIONS[definition](value)
            repr(made)
        except nova.NovaError:
            continue
        except Exception as error:
            raw[repr(value)[:60]] = f"{type(error).__name__}: {error}"
    assert not raw, raw


def test_a_workflowette_in_a_project_says_how_to_bind_it() -> None:
    with pytest.raises(nova.DefinitionError) as refused:
        nova.Project([workflowette])  # type: ignore[list-item]
    assert "bindings of nova.Project: a Workflowette" in str(refused.value) and "nova.bind(workflowette)" in str(
        refused.value
    )
