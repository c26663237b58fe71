"""Examination of a file of another writer: whole, cut, and with one bit turned, by each way into a channel.

A whole file gives the rows that its writer wrote, or is refused by the unsupported feature. A damaged file is refused
by its damage, or gives the rows of the whole file. It may give other rows only if the writer's reader reads the same
ones, because nothing in the file tells the damage. A refusal changes nothing.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import nova_assets as nova
from nova_assets_tests.foreign_files.foreign_file import ForeignFile, Rows, comparable_rows, rows_of_arrow

TRUNCATED = re.compile("not a complete|it is truncated|ends inside a quoted value")
CAUSES = {
    "truncated": TRUNCATED,
    "damaged": re.compile("is damaged|is complete, but cannot be read|it is damaged|crashes the process"),
    "schema": re.compile(
        "which Spark has no type for|a type that channels do not support|different types|another schema|"
        "column .* is missing|column .* is not on the channel|not of its type|types are unknown|two columns called|"
        "columns are missing|column .* is .*, not |cannot be kept as it is"
    ),
    "value": re.compile("row \\d+|record \\d+|column '|not UTF-8|times outside the years|more than once|no column"),
    "unsupported": re.compile("compression that cannot be read|does not support|is encrypted"),
    "empty": re.compile("is empty"),
    "large": re.compile("too large|more memory|within .* seconds"),
}
_TAIL = {".parquet": 8, ".orc": 30, ".avro": 16}
"""Length of the end of a file that says that the file is complete."""

_NOT_KEPT = "cannot be kept as it is|bytes without a record"
"""Refusals of files that nova takes if it may convert their rows."""

_RAW = re.compile(r"Traceback|\b(?!NOVA)[A-Z]\w*(?:Error|Exception)\b|KeyError|fastavro\.")


@dataclass
class Report:
    """Figures of an examination, and what is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


@dataclass
class Form:
    """The file, or a damaged copy of it."""

    kind: str
    label: str
    path: Path
    hits_end_marks: bool = False
    outcomes: dict[str, list[str] | None] = field(default_factory=dict)


def examine(file: ForeignFile, folder: Path, seed: str, cuts: int, flips: int, report: Report) -> None:
    """Examine one file in a store of its own."""
    folder.mkdir()
    forms = make_forms(file, folder, random.Random(f"{seed} {file.name}"), cuts, flips)
    whole = forms[0].path
    expected = comparable_rows(file.rows if file.rows is not None else [] if file.refusal else file.read(whole))
    landing = folder / "landing"
    landing.mkdir()
    with nova.open(catalog=f"sqlite:///{folder}/c.db", warehouse=folder / "wh") as store:
        examination = _Examination(file, store, folder, expected, report)
        for channel, keep_files in (("inserted", False), ("kept", True)):
            store.register(nova.Channel(channel, schema=file.schema))
            # The whole file is still accepted after the others.
            for form in [*forms, forms[0]] if channel == "inserted" else [*forms[:3], forms[-1], forms[0]]:
                examination.insert(channel, form, keep_files)
        examination.receive(forms, landing)


def make_forms(file: ForeignFile, folder: Path, rng: random.Random, cuts: int, flips: int) -> list[Form]:
    whole = folder / f"whole{file.suffix}"
    file.write(whole)
    content = whole.read_bytes()
    forms = [Form("whole", "whole", whole)]
    for _ in range(cuts):
        length = rng.randrange(1, len(content))
        path = _put(folder, f"cut{length}{file.suffix}", content[:length])
        forms.append(Form("cut", f"cut at {length} of {len(content)}", path))
    for _ in range(flips):
        at, bit = rng.randrange(len(content)), rng.randrange(8)
        damaged = bytearray(content)
        damaged[at] ^= 1 << bit
        path = _put(folder, f"flip{at}_{bit}{file.suffix}", bytes(damaged))
        at_mark = at < 4 or at >= len(content) - _TAIL.get(file.suffix, len(content))
        at_mark |= file.suffix == ".avro" and at < content.find(content[-16:]) + 16  # in the header
        forms.append(Form("flip", f"bit {bit} of byte {at} of {len(content)}", path, at_mark))
    return forms


def _put(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@dataclass
class _Examination:
    file: ForeignFile
    store: nova.Store
    folder: Path
    expected: list[str]
    report: Report
    rows: dict[str, Counter[str]] = field(default_factory=dict)

    def insert(self, channel: str, form: Form, keep_files: bool) -> None:
        before = self._state(channel)
        try:
            self.store.insert(channel, form.path, keep_files=keep_files)
        except nova.NovaError as error:
            self._check_refusal(form, str(error), channel)
            if self._state(channel) != before:
                self._fault(form, channel, "the refusal changed something")
            self._count(form, channel, self._cause(str(error)))
        except Exception as error:
            self._fault(form, channel, f"a raw {type(error).__name__}: {error}")
        else:
            try:
                rows = self._new_rows(channel)
            except nova.NovaError as error:
                self._fault(form, channel, f"is committed, and cannot be read: {error}")
                return
            self._check_rows(form, rows, channel)
            form.outcomes.setdefault(channel, rows)
            self._count(form, channel, "alike" if rows == self.expected else "changed, as its reader reads it")

    def receive(self, forms: list[Form], landing: Path) -> None:
        """Receive all forms together: the rows are those of the files that were taken."""
        schema = next(s.schema for s in self.store.channels() if s.channel.name == "inserted")
        if schema is None:  # the whole file was refused, or has no rows
            return
        for form in forms:
            path = landing / form.path.name
            path.write_bytes(form.path.read_bytes())
            os.utime(path, (1, 1))
        source = nova.files(str(landing), min_age="1s", on_extra_columns="refuse")
        project = nova.Project(channels=[nova.Channel("arrived", schema=schema.with_all_nullable(), source=source)])
        with nova.open(project, f"sqlite:///{self.folder}/c.db", self.folder / "wh") as store:
            received = store.receive("arrived")
            states = {s.arrival.path: s for s in store.arrivals("arrived")}
            rows = comparable_rows(rows_of_arrow(store.read("arrived").to_arrow()))
        by_name = {form.path.name: form for form in forms}
        if received.waiting or set(states) != set(by_name):
            self._fault(forms[0], "arrived", f"files wait: {received}")
        wanted: Rows = []
        for name, form in by_name.items():
            state = states[name]
            if state.state == "refused":
                self._check_refusal(form, f"{name}: {state.reason}", "arrived")
                self._count(form, "arrived", self._cause(str(state.reason)))
            else:
                self._count(form, "arrived", state.state)
                wanted += form.outcomes.get("inserted") or []  # type: ignore[arg-type]
        if received.bad == sum(s.state == "refused" for s in states.values()) and rows != sorted(wanted):  # type: ignore[type-var]
            self._fault(forms[0], "arrived", f"{len(rows)} rows, not {len(wanted)}: {rows[:3]}, not {wanted[:3]}")

    def _state(self, channel: str) -> tuple[int, int]:
        head = next(s.head for s in self.store.channels() if s.channel.name == channel)
        return head, sum(1 for p in (self.folder / "wh" / "blocks").rglob("*") if p.is_file())

    def _new_rows(self, channel: str) -> list[str]:
        """Rows of the channel that it did not have before."""
        rows = Counter(comparable_rows(rows_of_arrow(self.store.read(channel).to_arrow())))
        new = rows - self.rows.get(channel, Counter())
        if rows.total() != new.total() + self.rows.get(channel, Counter()).total():
            self.report.differences.append(f"{self.file.name}: rows of {channel} are lost")
        self.rows[channel] = rows
        return sorted(new.elements())

    def _check_rows(self, form: Form, rows: list[str], channel: str) -> None:
        if form.kind == "whole" and self.file.refusal is not None:
            self._fault(form, channel, f"is taken: {rows[:3]}")
        elif rows != self.expected:
            if form.kind == "whole":
                self._fault(
                    form, channel, f"{rows[:3]} of {len(rows)}, not {self.expected[:3]} of {len(self.expected)}"
                )
                return
            try:
                judged = comparable_rows(self.file.read(form.path))
            except BaseException as error:
                self._fault(
                    form, channel, f"{_difference(rows, self.expected)}; its reader: {type(error).__name__}: {error}"
                )
            else:
                other = self.file.other_reader
                if judged != rows and (other is None or comparable_rows(other(form.path)) != rows):
                    self._fault(form, channel, f"{_difference(rows, judged)}; as its reader reads it")

    def _check_refusal(self, form: Form, message: str, channel: str) -> None:
        if form.kind == "whole":
            if channel == "kept" and re.search(_NOT_KEPT, message):
                return
            if self.rows.get(channel) and "column 'v'" in message:  # of a damaged file with another type
                return
            if self.file.refusal is None or not re.search(self.file.refusal, message):
                self._fault(form, channel, message)
            return
        if form.path.name not in message and channel not in message:
            self._fault(form, channel, f"no name of the file: {message}")
        if _RAW.search(message.replace("thrift: TProtocolException", "thrift")):
            self._fault(form, channel, f"raw: {message}")
        if not self._is_right_cause(form, message):
            self._fault(form, channel, f"the cause: {message}")

    def _is_right_cause(self, form: Form, message: str) -> bool:
        if self.file.refusal is not None and re.search(self.file.refusal, message):
            return True
        is_truncated = TRUNCATED.search(message) is not None
        if self._cause(message) == "other" or self.file.suffix in (".csv", ".json", ".jsonl"):
            return self._cause(message) != "other"
        if form.kind == "cut" and self.file.suffix == ".avro" and "is empty" in message:  # nothing but its header
            return True
        return is_truncated if form.kind == "cut" else not is_truncated or form.hits_end_marks

    def _cause(self, message: str) -> str:
        return next((f"refused: {name}" for name, pattern in CAUSES.items() if pattern.search(message)), "other")

    def _count(self, form: Form, channel: str, outcome: str) -> None:
        self.report.counts[f"{form.kind:6} {channel:9} {outcome}"] += 1

    def _fault(self, form: Form, channel: str, text: str) -> None:
        self.report.differences.append(f"{self.file.name}: {form.label}, {channel}: {text}")


def _difference(actual: list[str], wanted: list[str]) -> str:
    more, less = Counter(actual) - Counter(wanted), Counter(wanted) - Counter(actual)
    return f"{len(actual)} rows with {list(more)[:2]}, not {len(wanted)} with {list(less)[:2]}"
