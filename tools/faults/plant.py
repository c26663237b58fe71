"""Plants faults in a copy of the repository: all of a list at once, each asleep."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tools.faults.fault import Fault
from tools.faults.places import Place, find_places

_ASLEEP = Path(__file__).with_name("asleep.py")


def plant_faults(faults: Sequence[Fault], checkout: Path) -> list[int]:
    """Plant the faults in a checkout that has an environment of its own in ``.venv``.

    Returns:
        The numbers of the faults whose place no longer exists.
    """
    by_file: dict[str, list[int]] = defaultdict(list)
    for number, fault in enumerate(faults):
        by_file[fault.file].append(number)
    missing = []
    for name, numbers in by_file.items():
        file = checkout / name
        source = file.read_bytes() if file.is_file() else b""
        places = {_key(place.fault): place for place in find_places(name, source)}
        planted = {number: places[_key(faults[number])] for number in numbers if _key(faults[number]) in places}
        missing += [number for number in numbers if number not in planted]
        if planted:
            file.write_bytes(plant_in_source(source, planted))
    _install(checkout)
    return missing


def plant_in_source(source: bytes, planted: dict[int, Place]) -> bytes:
    """The source with each place behind a call that tells whether its fault is awake."""
    for number, place in sorted(planted.items(), key=lambda item: item[1].start, reverse=True):
        original = source[place.start : place.end].decode()
        if place.is_statement:
            text = f"if not __fault__({number}): {original}"
        else:
            text = f"(({place.fault.mutated}) if __fault__({number}) else ({original}))"
        source = source[: place.start] + text.encode() + source[place.end :]
    return source


def _key(fault: Fault) -> tuple[str, str, str, str, int]:
    return (fault.function, fault.kind, fault.original, fault.mutated, fault.nth)


def _install(checkout: Path) -> None:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = checkout / ".venv" / "bin" / "python"
    packages = Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    shutil.copy(_ASLEEP, packages / "nova_faults_asleep.py")
    (packages / "nova_faults.pth").write_text("import nova_faults_asleep\n")
