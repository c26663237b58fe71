"""Date patterns such as ``yyyy-MM-dd HH:mm``, limited to the letters that all versions of Spark interpret alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache

from nova_assets.sql.evaluation.operand import Undecided

_FIELDS: Mapping[str, tuple[str, Callable[[datetime], str]]] = {
    "yyyy": ("year", lambda t: f"{t.year:04d}"),
    "MM": ("month", lambda t: f"{t.month:02d}"),
    "M": ("", lambda t: str(t.month)),
    "dd": ("day", lambda t: f"{t.day:02d}"),
    "d": ("", lambda t: str(t.day)),
    "HH": ("hour", lambda t: f"{t.hour:02d}"),
    "H": ("", lambda t: str(t.hour)),
    "mm": ("minute", lambda t: f"{t.minute:02d}"),
    "ss": ("second", lambda t: f"{t.second:02d}"),
    "DDD": ("", lambda t: f"{t.timetuple().tm_yday:03d}"),
}
"""Letters -> the datetime field that they parse (empty for none), and their formatter."""

_TOKEN = re.compile(r"''|'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']")
_RESERVED = "[]{}#"


@dataclass(frozen=True)
class DatePattern:
    """A parsed date pattern.

    Args:
        text: the pattern as written.
        parts: keys of ``_FIELDS``, and literal texts, each as a list of one element.
    """

    text: str
    parts: tuple[str | list[str], ...]

    def format(self, moment: datetime) -> str:
        return "".join(p[0] if isinstance(p, list) else _FIELDS[p][1](moment) for p in self.parts)

    def parse_date(self, text: str) -> date:
        """Parse a date in this pattern. Raises Undecided."""
        match = self._parsing_regex().fullmatch(text)
        if match is None:
            raise Undecided(f"{text!r} is not written as {self.text!r}")
        values_by_field = {name: int(value) for name, value in match.groupdict().items()}
        try:
            return datetime(
                values_by_field["year"], values_by_field.get("month", 1), values_by_field.get("day", 1),
                values_by_field.get("hour", 0), values_by_field.get("minute", 0), values_by_field.get("second", 0),
            ).date()  # fmt: skip
        except (ValueError, KeyError):
            raise Undecided(f"{text!r} is not a date of {self.text!r}") from None

    def _parsing_regex(self) -> re.Pattern[str]:
        names = [_FIELDS[p][0] for p in self.parts if isinstance(p, str)]
        if "" in names or len(set(names)) < len(names):
            raise Undecided(f"dates written as {self.text!r} are not read before a query runs")
        each = (
            re.escape(p[0]) if isinstance(p, list) else f"(?P<{_FIELDS[p][0]}>[0-9]{{{len(p)}}})" for p in self.parts
        )
        return re.compile("".join(each))


@lru_cache(maxsize=256)
def parse_pattern(text: str) -> DatePattern:
    """Parse a pattern. Raises Undecided if it has unsupported letters."""
    parts, end = list[str | list[str]](), 0
    for token in _TOKEN.finditer(text):
        found = token[0]
        if token.start() != end or found in _RESERVED:
            break
        end = token.end()
        if found[0] == "'":
            parts.append(["'"] if found == "''" else [found[1:-1].replace("''", "'")])
        elif found[0].isalpha():
            if found not in _FIELDS:
                raise Undecided(f"the letters {found} of the pattern {text!r} are not evaluated on partitions")
            parts.append(found)
        else:
            parts.append([found])
    if end != len(text):
        raise Undecided(f"the pattern {text!r} is not evaluated on partitions")
    return DatePattern(text, tuple(parts))
