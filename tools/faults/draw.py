"""Draws faults at random, spread over all rooms of the package."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

from tools.faults.fault import Fault
from tools.faults.places import find_places

_LEAST_OF_ROOM = 2


def draw_faults(root: Path, seed: int, count: int) -> list[Fault]:
    """Faults at random places, at most one in a function.

    A room gets faults by the square root of its places, and at least two. Within a room, first the kind is drawn and
    then the place: kinds that stand everywhere are not drawn more often than others.
    """
    rng = random.Random(seed)
    rooms = _faults_by_room(root)
    faults: list[Fault] = []
    for room, number in _share(rooms, count).items():
        left = list(rooms[room])
        for _ in range(number):
            kind = rng.choice(sorted({fault.kind for fault in left}))
            chosen = rng.choice([fault for fault in left if fault.kind == kind])
            faults.append(chosen)
            left = [fault for fault in left if (fault.file, fault.function) != (chosen.file, chosen.function)]
    return faults


def _faults_by_room(root: Path) -> dict[str, list[Fault]]:
    rooms: dict[str, list[Fault]] = defaultdict(list)
    for file in sorted((root / "nova_assets").rglob("*.py")):
        name = file.relative_to(root)
        room = name.parts[1] if len(name.parts) > 2 else "top level"
        if "migrations" not in name.parts:
            rooms[room] += [place.fault for place in find_places(str(name), file.read_bytes())]
    return {room: faults for room, faults in rooms.items() if len(faults) >= _LEAST_OF_ROOM * 5}


def _share(rooms: dict[str, list[Fault]], count: int) -> dict[str, int]:
    weights = {room: len(faults) ** 0.5 for room, faults in rooms.items()}
    spare = count - _LEAST_OF_ROOM * len(rooms)
    exact = {room: spare * weight / sum(weights.values()) for room, weight in weights.items()}
    shares = {room: _LEAST_OF_ROOM + int(value) for room, value in exact.items()}
    by_rest = sorted(rooms, key=lambda room: exact[room] % 1, reverse=True)
    for room in by_rest[: count - sum(shares.values())]:
        shares[room] += 1
    return shares
