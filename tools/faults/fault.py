"""A fault: one small change of one place in the package, such as a comparison that is off by one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A change of one expression or statement.

    Args:
        file: path below the root of the repository.
        function: qualified name of the function in which the place is.
        kind: what is changed, such as ``comparison``.
        original: text of the place.
        mutated: text in its stead.
        nth: which one, of several such places in the function; from 0.
        line: of the place when the fault was drawn. For people.
    """

    file: str
    function: str
    kind: str
    original: str
    mutated: str
    nth: int = 0
    line: int = 0

    def describe(self) -> str:
        """One line: where, what, and what it becomes."""
        texts = (" ".join(text.split())[:70] for text in (self.original, self.mutated))
        return f"{self.file}:{self.line} {self.function} [{self.kind}] {' => '.join(texts)}"


def write_faults(seed: int, faults: Iterable[Fault]) -> str:
    """A list of faults as JSON, with the seed that drew it."""
    return json.dumps({"seed": seed, "faults": [asdict(fault) for fault in faults]}, indent=1) + "\n"


def read_faults(file: Path) -> list[Fault]:
    """The faults of a list, in its order."""
    return [Fault(**fields) for fields in json.loads(file.read_text())["faults"]]
