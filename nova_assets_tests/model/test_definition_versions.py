"""Contents of definitions: what is part of a version, and how two versions differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nova_assets as nova
from nova_assets.model.binding import Binding
from nova_assets.model.registered_definition import (
    binding_content,
    binding_fingerprint,
    changed_parts,
    definitions_to_register,
)

orders = nova.Channel("orders", schema="id bigint")
archive = nova.Channel("archive", schema="id bigint")


def bound(function: Any, params: dict[str, Any] | None = None, **task_options: Any) -> Binding:
    task = nova.task(name="keep", consumes=nova.new(orders), produces=nova.delta(archive), **task_options)(function)
    return nova.bind(nova.Workflowette("sell", [task]), params=params, when=nova.on_data(orders))


def keep(orders: Any) -> Any:
    return orders


def keep_all(orders: Any) -> Any:
    return orders  # another text


def differences(earlier: Binding, later: Binding) -> tuple[str, ...]:
    return changed_parts(binding_content(earlier), binding_content(later))


def test_a_version_names_the_task_whose_code_or_options_differ() -> None:
    assert binding_fingerprint(bound(keep)) == binding_fingerprint(bound(keep))
    assert differences(bound(keep), bound(keep_all)) == ("tasks.keep.code",)
    assert differences(bound(keep), bound(keep, retries=2)) == ("tasks.keep.retries",)


def test_parameters_differ_by_name_and_their_values_are_not_stored() -> None:
    earlier, later = bound(keep, {"token": "hunter2", "k": 4}), bound(keep, {"token": "hunter3", "k": 4})
    assert differences(earlier, later) == ("params.token",)
    assert "hunter" not in str(binding_content(later))
    unstorable = bound(keep, {"when": object()})
    assert binding_fingerprint(unstorable) == binding_fingerprint(bound(keep, {"when": object()}))


def test_a_query_is_part_of_a_version_and_the_folder_of_its_file_is_not(tmp_path: Path) -> None:
    found = []
    for n, query in enumerate(("SELECT id FROM orders", "SELECT id FROM orders", "SELECT id FROM orders WHERE id > 1")):
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "ids.sql").write_text(query)
        [binding] = nova.datasets(tmp_path / str(n), channels=[orders])
        found.append(binding)
    assert differences(found[0], found[1]) == ()
    assert differences(found[1], found[2]) == ("tasks.make_ids.query.sql",)


def test_the_query_of_a_task_in_python_is_part_of_a_version() -> None:
    def counted(sql: str, **options: Any) -> Binding:
        counts = nova.Channel("counts", merge=nova.Upsert(key="id"))
        task = nova.incremental("count", sql, produces=nova.delta(counts), **options)
        return nova.bind(nova.Workflowette("sell", [task]))

    def copied(sql: str) -> Binding:
        return nova.bind(nova.Workflowette("sell", [nova.sql_task("copy", sql, produces=nova.delta(archive))]))

    count = "SELECT id, COUNT(*) AS n FROM orders GROUP BY id"
    assert differences(counted(count), counted(count)) == ()
    assert differences(counted(count), counted(count.replace("COUNT(*)", "2 * COUNT(*)"))) == ("tasks.count.query.sql",)
    assert differences(counted(count), counted("FROZEN WHERE id < 3 " + count)) == ("tasks.count.query.frozen",)
    assert differences(counted(count), counted(count, refresh="auto")) == ("tasks.count.query.prefers_changes",)
    assert differences(copied("SELECT id FROM orders"), copied("SELECT id FROM orders WHERE id > 1")) == (
        "tasks.copy.query.sql",
    )


def test_a_project_has_channels_workflowettes_bindings_and_triggers() -> None:
    found = definitions_to_register([orders, archive], [bound(keep)])
    assert [str(d.key) for d in found] == [
        "channel orders",
        "channel archive",
        "workflowette sell",
        "binding sell",
        "trigger sell",
    ]


def test_a_channel_differs_by_its_retention_as_well() -> None:
    [earlier] = definitions_to_register([orders], [])
    [later] = definitions_to_register([nova.Channel("orders", schema="id bigint, n bigint", retain="3d")], [])
    assert changed_parts(earlier.content, later.content) == ("maintenance.retain", "schema.n")


def test_a_part_that_is_new_or_gone_is_a_difference() -> None:
    assert changed_parts({"when": None, "tasks": []}, {"when": "every(1h)", "tasks": [{"name": "t"}]}) == (
        "tasks",
        "when",
    )
    assert changed_parts({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}) == ("a.y",)
