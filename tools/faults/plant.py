"""Plants faults in a copy of the repository: all of a list at once, each asleep."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tools.faults.fault import Fault
from tools.faults.places import Place, find_beginnings, find_places

_INSTALLED = {"asleep.py": "nova_faults_asleep.py", "hunter.py": "nova_faults_hunter.py"}


def plant_faults(faults: Sequence[Fault], checkout: Path) -> list[int]:
    """Plant the faults in a checkout that has an environment of its own in ``.venv``.

    Each function of the package tells that a test has reached it, so that the report of one run serves any faults.

    Returns:
        The numbers of the faults whose place no longer exists.
    """
    by_file: dict[str, list[int]] = defaultdict(list)
    for number, fault in enumerate(faults):
        by_file[fault.file].append(number)
    missing = [number for name, numbers in by_file.items() if not (checkout / name).is_file() for number in numbers]
    for file in sorted((checkout / "nova_assets").rglob("*.py")):
        name = str(file.relative_to(checkout))
        source = file.read_bytes()
        places = {_key(place.fault): place for place in find_places(name, source)}
        planted = {number: places[_key(faults[number])] for number in by_file[name] if _key(faults[number]) in places}
        missing += [number for number in by_file[name] if number not in planted]
        file.write_bytes(plant_in_source(source, planted, name))
    _install(checkout)
    return missing


def plant_in_source(source: bytes, planted: dict[int, Place], name: str | None = None) -> bytes:
    """The source with each place behind a call that tells whether its fault is awake.

    Args:
        name: of the file. With it, each function calls ``__reach__`` when it begins.
    """
    changes = [_planted_place(source, number, place) for number, place in planted.items()]
    if name is not None:
        for beginning in find_beginnings(source):
            call = f"__reach__({f'{name}:{beginning.function}'!r})\n" + " " * beginning.indent
            changes.append((beginning.offset, beginning.offset, call))
    for start, end, text in sorted(changes, reverse=True):
        source = source[:start] + text.encode() + source[end:]
    return source


def _planted_place(source: bytes, number: int, place: Place) -> tuple[int, int, str]:
    original = source[place.start : place.end].decode()
    if place.is_statement:
        text = f"if not __fault__({number}): {original}"
    else:
        text = f"(({place.fault.mutated}) if __fault__({number}) else ({original}))"
    return place.start, place.end, text


def _key(fault: Fault) -> tuple[str, str, str, str, int]:
    return (fault.function, fault.kind, fault.original, fault.mutated, fault.nth)


def _install(checkout: Path) -> None:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = checkout / ".venv" / "bin" / "python"
    packages = Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    for name, installed in _INSTALLED.items():
        shutil.copy(Path(__file__).with_name(name), packages / installed)
    (packages / "nova_faults.pth").write_text("import nova_faults_asleep\n")
