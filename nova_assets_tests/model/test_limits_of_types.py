"""The last value that a type takes and the first that it does not, and which types take all values of another."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import nova_assets as nova
from nova_assets.model.schema import Schema, parse_ddl
from nova_assets.model.schema_evolution import can_widen
from nova_assets.model.sum_bounds import is_in_type_range
from nova_assets.testing import World


@pytest.mark.parametrize(
    ("old", "new", "possible"),
    [
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(20,2)", True),
        ("decimal(10,2)", "decimal(10,4)", False),  # fewer digits before the point
        ("decimal(10,2)", "decimal(12,1)", False),  # fewer digits after it
        ("struct<a:int,b:int>", "struct<a:bigint,b:int>", True),
        ("struct<a:int,b:int>", "struct<b:int,a:int>", True),  # fields are found by their names
        ("struct<a:int,b:int>", "struct<a:int>", False),
    ],
)
def test_a_type_is_widened_only_to_one_that_has_all_its_values(old: str, new: str, possible: bool) -> None:
    [before], [after] = parse_ddl(f"v {old}").fields, parse_ddl(f"v {new}").fields
    assert can_widen(before.type, after.type) is possible


@pytest.mark.parametrize(
    ("name", "least", "greatest", "step"),
    [
        ("tinyint", Fraction(-128), Fraction(127), Fraction(1)),
        ("bigint", Fraction(-(2**63)), Fraction(2**63 - 1), Fraction(1)),
        ("decimal(5,2)", Fraction("-999.99"), Fraction("999.99"), Fraction("0.01")),
    ],
)
def test_a_sum_may_be_the_last_value_of_its_type(
    name: str, least: Fraction, greatest: Fraction, step: Fraction
) -> None:
    [field] = parse_ddl(f"v {name}").fields
    assert is_in_type_range(least, field.type) and is_in_type_range(greatest, field.type)
    assert not is_in_type_range(least - step, field.type) and not is_in_type_range(greatest + step, field.type)


@pytest.mark.parametrize(("name", "bits"), [("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64)])
def test_an_integer_may_be_the_last_value_of_its_type(name: str, bits: int) -> None:
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    with World() as world:
        world.register(nova.Channel("c", schema=f"v {name}"))
        for value in (least - 1, greatest + 1):
            with pytest.raises(nova.NovaError, match="v"):
                world.insert("c", [{"v": value}])
        world.insert("c", [{"v": least}, {"v": greatest}])
        assert sorted(row["v"] for row in world.read("c").to_arrow().to_pylist()) == [least, greatest]


def test_a_schema_keeps_the_identities_of_its_columns() -> None:
    """Without them, a column that was dropped and added again would show its old values."""
    first, again = parse_ddl("v int, w string NOT NULL").fields
    schema = Schema((first, replace(again, id="w@3")))
    assert Schema.from_json(schema.as_json()) == schema
