"""`python -m tools.faults`: a planted fault sleeps until it is woken, and each place can be planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.faults.draw import draw_faults
from tools.faults.fault import read_faults, write_faults
from tools.faults.places import find_places
from tools.faults.plant import plant_in_source

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''
"""A module."""

LIMIT = 3


def add_small(totals: list[int], numbers: list[int], limit: int = LIMIT, *, strict: bool = False) -> int:
    """Adds the numbers below a limit."""
    if strict and not numbers:
        raise ValueError(f"none of {len(numbers) > 0}")
    totals.append(sum(n for n in numbers if n < limit))
    return sorted(totals, reverse=True)[0] + 1
'''

CALLS: list[dict[str, Any]] = [
    {"totals": [], "numbers": [1, 3, 5]},
    {"totals": [9], "numbers": [2]},
    {"totals": [], "numbers": [], "strict": True},
    {"totals": [], "numbers": [], "strict": False},
    {"totals": [], "numbers": [1], "strict": True},
]


def outcomes_with(source: bytes, is_awake: Callable[[int], bool]) -> list[object]:
    names: dict[str, Any] = {"__fault__": is_awake}
    exec(compile(source, "planted", "exec"), names)
    outcomes: list[object] = []
    for call in CALLS:
        arguments = json.loads(json.dumps(call))
        try:
            outcomes.append((names["add_small"](**arguments), arguments["totals"]))
        except (ValueError, TypeError, IndexError) as error:
            outcomes.append(type(error))
    return outcomes


def test_each_place_of_a_file_is_found_and_planted() -> None:
    source = SOURCE.encode()
    places = find_places("module.py", source)
    assert {place.fault.kind for place in places} == {
        "and/or",
        "argument dropped",
        "arithmetic",
        "call left out",
        "comparison",
        "condition negated",
        "constant",
        "filter dropped",
        "not dropped",
        "raise left out",
        "result dropped",
    }
    assert all(place.fault.function == "add_small" for place in places)
    planted = plant_in_source(source, dict(enumerate(places[:1])))
    assert outcomes_with(planted, lambda number: False) == outcomes_with(source, lambda number: False)
    for place in places:
        planted = plant_in_source(source, {7: place})
        right = outcomes_with(source, lambda number: False)
        assert outcomes_with(planted, lambda number: False) == right
        assert outcomes_with(planted, lambda number: number == 7) != right, place.fault.describe()


def test_a_planted_function_tells_that_it_is_reached() -> None:
    source = SOURCE.encode()
    reached: list[str] = []
    planted = plant_in_source(source, {0: find_places("module.py", source)[0]}, "module.py")
    names: dict[str, Any] = {"__fault__": lambda number: False, "__reach__": reached.append}
    exec(compile(planted, "planted", "exec"), names)
    assert reached == []
    assert names["add_small"]([], [1, 2]) == 4 and reached == ["module.py:add_small"]


@pytest.mark.parametrize(
    "body",
    [
        b'"""Text."""\n    call()',
        b"call()",
        b"if True:\n        call()",
        b"@decorate\n    def inner():\n        call()\n    inner()",
        b"for _ in range(1):\n        call()",
    ],
)
def test_a_call_stands_before_any_first_statement(body: bytes) -> None:
    source = b"def f() -> None:\n    " + body + b"\n"
    reached: list[str] = []
    places = {n: place for n, place in enumerate(find_places("m.py", source)) if place.fault.kind == "call left out"}
    names: dict[str, Any] = {
        "__fault__": lambda number: False,
        "__reach__": reached.append,
        "call": lambda: reached.append("called"),
        "decorate": lambda function: function,
    }
    exec(compile(plant_in_source(source, places, "m.py"), "planted", "exec"), names)
    names["f"]()
    assert reached[0] == "m.py:f" and reached[-1] == "called"


def test_texts_annotations_and_defaults_are_no_places() -> None:
    source = b'def f(a: int = 1) -> "list[int] | None":\n    """Over 3 > 2."""\n    b: "int | str" = a\n'
    assert find_places("module.py", source) == []


@pytest.mark.parametrize(("name", "rooms"), [("first.json", 20), ("later.json", 15), ("sql.json", 1)])
def test_the_drawn_faults_are_spread_over_the_rooms(name: str, rooms: int, tmp_path: Path) -> None:
    faults = read_faults(ROOT / "tools" / "faults" / name)
    assert len({(fault.file, fault.function) for fault in faults}) == len(faults)
    assert len({fault.file.split("/")[1] for fault in faults if fault.file.count("/") > 1}) >= rooms
    copy = tmp_path / "copy.json"
    copy.write_text(write_faults(47, faults))
    assert read_faults(copy) == faults


def test_a_seed_draws_the_same_faults_again(tmp_path: Path) -> None:
    for room in ("one", "two"):
        folder = tmp_path / "nova_assets" / room
        folder.mkdir(parents=True)
        (folder / "module.py").write_text(SOURCE)
        (folder / "other.py").write_text(SOURCE)
    drawn = draw_faults(tmp_path, 1, 4)
    assert drawn == draw_faults(tmp_path, 1, 4) != draw_faults(tmp_path, 2, 4)
    assert sorted(fault.file.split("/")[1] for fault in drawn) == ["one", "one", "two", "two"]
