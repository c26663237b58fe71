"""What tasks did is kept beside the commit, over each catalog."""

from __future__ import annotations

from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import TaskFailed
from nova_assets_tests.execution.conftest import Opener

DDL = "k bigint, v bigint"
source = nova.Channel("source", merge=nova.Upsert(key="k"), schema=DDL)
total = nova.Channel("total", merge=nova.Upsert(key="k"), schema=DDL)
copy = nova.Channel("copy", merge=nova.Upsert(key="k"), schema=DDL)


@nova.task(consumes=nova.all(source), produces=nova.base(copy))
def keep(source: Any) -> Any:
    return source


project = nova.Project([nova.bind(nova.Workflowette("w", [keep]))])


def test_a_commit_says_how_its_inputs_were_read_and_what_that_was_expected_to_cost(opened: Opener) -> None:
    store = opened(project)
    store.insert("source", [{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    store.run("w")
    (instant,) = opened(project).timeline("copy")
    (task,) = instant.details["tasks"]
    assert (task["task"], task["read"], task["wrote"], task["skipped"]) == ("keep", {"source": 2}, {"copy": 2}, False)
    expected = task["ways"]["source"]
    assert expected["way"] == "spark" and expected["rows"] == 2 and expected["seconds"] > 0
    assert task["seconds"] >= 0


def test_a_resumed_execution_says_it_of_the_tasks_that_ran_then(opened: Opener) -> None:
    troubles = [ValueError("not today")]

    @nova.task(consumes=nova.all(copy), produces=nova.base(total))
    def add_up(copy: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return copy

    store = opened(nova.Project([nova.bind(nova.Workflowette("two", [keep, add_up]))]))
    store.insert("source", [{"k": 1, "v": 1}])
    with pytest.raises(TaskFailed):
        store.run("two")
    failed = store.executions("two")[0]
    done = store.run("two", resume=failed.id)
    assert done.commit is not None
    assert [t["task"] for t in done.commit.details["tasks"]] == ["add_up"]
