"""Values of partition columns as people write them: each way names the partition of the value, or is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.model.partitions import parse_partition
from nova_assets.model.schema import parse_ddl


def parse(type_: str, written: Any) -> str:
    return parse_partition([nova.dynamic("p")], written, schema=parse_ddl(f"p {type_}"))


@pytest.mark.parametrize(
    ("type_", "written", "name"),
    [
        ("boolean", {"p": True}, "p=true"),
        ("boolean", "p=True", "p=true"),
        ("boolean", "false", "p=false"),
        ("int", {"p": 7}, "p=7"),
        ("bigint", "p=07", "p=7"),
        ("smallint", "p=+7", "p=7"),
        ("tinyint", "-0", "p=0"),
        ("date", {"p": date(2024, 1, 5)}, "p=2024-01-05"),
        ("date", {"p": datetime(2024, 1, 5)}, "p=2024-01-05"),
        ("date", "2024-01-05", "p=2024-01-05"),
        ("string", "07", "p=07"),
        ("string", {"p": 7}, "p=7"),
    ],
)
def test_each_way_to_write_a_value_names_its_partition(type_: str, written: Any, name: str) -> None:
    assert parse(type_, written) == name


@pytest.mark.parametrize(
    ("type_", "written", "expected"),
    [
        ("boolean", "p=yes", "true or false"),
        ("boolean", {"p": 1}, "true or false"),
        ("int", {"p": 7.0}, "a whole number"),
        ("int", "seven", "a whole number"),
        ("int", {"p": True}, "a whole number"),
        ("date", "2024-1-5", "YYYY-MM-DD"),
        ("date", "20240105", "YYYY-MM-DD"),
        ("date", "2024-02-30", "YYYY-MM-DD"),
        ("date", {"p": datetime(2024, 1, 5, 1)}, "YYYY-MM-DD"),
        ("date", {"p": datetime(2024, 1, 5, tzinfo=UTC)}, "YYYY-MM-DD"),
        ("string", {"p": True}, "a text"),
        ("string", {"p": 7.5}, "a text"),
    ],
)
def test_a_value_that_the_column_does_not_have_is_refused(type_: str, written: Any, expected: str) -> None:
    with pytest.raises(nova.PartitionError) as caught:
        parse(type_, written)
    assert expected in str(caught.value.expected)


def test_every_verb_takes_each_way_to_write_a_value(tmp_path: Path) -> None:
    flags = nova.Channel("flags", schema="p boolean, k bigint", partitions=nova.dynamic("p"))
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        store.register(flags)
        store.insert("flags", [{"p": True, "k": 1}])
        store.insert("flags", [{"k": 2}], partition={"p": True})
        for written in ({"p": True}, "p=True", "true"):
            assert len(store.read("flags", partition=written).to_arrow()) == 2
            assert [p.partition for p in store.partitions("flags", written)] == ["p=true"]
        verbs = (store.drop, store.partitions, lambda c, p: store.read(c, partition=p))
        for verb in verbs:
            with pytest.raises(nova.PartitionError, match="have no 'yes'"):
                verb("flags", "p=yes")
        assert store.drop("flags", "p=TRUE") is not None
        assert len(store.read("flags").to_arrow()) == 0
