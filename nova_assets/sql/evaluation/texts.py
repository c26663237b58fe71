"""Texts, as Spark computes with them. Characters are code points, and positions count from 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sqlglot import exp

from nova_assets.sql.evaluation.casting import BOOLEAN, INT, LONGEST_TEXT, STRING
from nova_assets.sql.evaluation.logic import negated
from nova_assets.sql.evaluation.operand import DATA, Operand, Undecided
from nova_assets.sql.evaluation.rules import Application, function, syntax
from nova_assets.sql.evaluation.values import UNKNOWN, Value, Values

_FARTHEST = 2**30
"""Positions beyond it overflow."""

_SHOWN_AS_TEXT = ("tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "decimal")


def text_of(a: Application, operand: Operand) -> Operand:
    """An argument as text. Raises NotUnderstood."""
    return a.implicit(operand, STRING, *_SHOWN_AS_TEXT)


def count_of(a: Application, operand: Operand) -> Operand:
    """An argument that counts. Raises NotUnderstood."""
    return a.implicit(operand, INT, "tinyint", "smallint")


def text(a: Application, compute: Callable[..., str], *operands: Operand) -> Operand:
    """A text that follows from other values. A very long one is undecided."""
    return a.computed(STRING, lambda *values: _bounded(compute(*values)), *operands)


def _bounded(value: str) -> str:
    if len(value) > LONGEST_TEXT:
        raise Undecided(f"a text of more than {LONGEST_TEXT} characters")
    return value


def _of_text(names: str, compute: Callable[[str], str]) -> None:
    """Register a function of one text that gives a text."""
    function(names, 1)(lambda a, operand: text(a, compute, text_of(a, operand)))


def _ascii_only(value: str) -> str:
    if not value.isascii():
        raise Undecided(f"upper and lower case of {value!r} depend on the version of Java")
    return value


_of_text("upper ucase", lambda value: _ascii_only(value).upper())
_of_text("lower lcase", lambda value: _ascii_only(value).lower())
_of_text("reverse", lambda value: value[::-1])


@function("length len char_length character_length", 1)
def _length(a: Application, operand: Operand) -> Operand:
    return a.computed(INT, len, text_of(a, operand))


@function("ascii", 1)
def _ascii(a: Application, operand: Operand) -> Operand:
    return a.computed(INT, lambda value: ord(value[0]) if value else 0, text_of(a, operand))


# parts


@syntax(exp.Substring, arguments="this start length")
def _substring_syntax(a: Application) -> Operand:
    length = a.node.args.get("length")
    return _substring(a, a.operand(), a.operand("start"), *([a.evaluate(length)] if length is not None else []))


@function("substring substr", 2, 3)
def _substring(a: Application, operand: Operand, start: Operand, *length: Operand) -> Operand:
    return text(a, _cut, text_of(a, operand), count_of(a, start), *(count_of(a, n) for n in length))


def _cut(value: str, start: int, length: int | None = None) -> str:
    """A start below zero counts from the end."""
    if max(abs(start), abs(length or 0)) > _FARTHEST:
        raise Undecided("Spark counts positions of a text in 32 bits")
    begin = start - 1 if start > 0 else len(value) + start if start < 0 else 0
    end = len(value) if length is None else begin + length
    return value[max(0, begin) : max(0, end)]


@syntax(exp.Left, arguments="this expression")
def _left_syntax(a: Application) -> Operand:
    return _left(a, a.operand(), a.operand("expression"))


@function("left", 2)
def _left(a: Application, operand: Operand, count: Operand) -> Operand:
    return text(a, lambda value, n: value[: max(0, n)], text_of(a, operand), count_of(a, count))


@syntax(exp.Right, arguments="this expression")
def _right_syntax(a: Application) -> Operand:
    return _right(a, a.operand(), a.operand("expression"))


@function("right", 2)
def _right(a: Application, operand: Operand, count: Operand) -> Operand:
    return text(a, lambda value, n: value[-n:] if n > 0 else "", text_of(a, operand), count_of(a, count))


@function("split_part", 3)
def _split_part(a: Application, operand: Operand, delimiter: Operand, number: Operand) -> Operand:
    return text(a, _part, text_of(a, operand), text_of(a, delimiter), count_of(a, number))


def _part(value: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise Undecided("parts of a text count from 1")
    parts = value.split(delimiter) if delimiter else [value]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


@function("substring_index", 3)
def _substring_index(a: Application, operand: Operand, delimiter: Operand, count: Operand) -> Operand:
    return text(a, _before_or_after, text_of(a, operand), text_of(a, delimiter), count_of(a, count))


def _before_or_after(value: str, delimiter: str, count: int) -> str:
    """What stands before the count-th delimiter, or after it, counted from the end. Delimiters may overlap."""
    if not delimiter or not count:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = value.find(delimiter, at + 1)
            if at < 0:
                return value
        return value[:at]
    at = len(value) - len(delimiter) + 1
    for _ in range(-count):
        at = value.rfind(delimiter, 0, at - 1 + len(delimiter)) if at > 0 else -1
        if at < 0:
            return value
    return value[at + len(delimiter) :]


# put together


@syntax(exp.DPipe, arguments="this expression safe")
def _joined_syntax(a: Application) -> Operand:
    return _concat(a, a.operand(), a.operand("expression"))


@function("concat", 1, None)
def _concat(a: Application, *operands: Operand) -> Operand:
    if any(o.type is None for o in operands):
        return DATA  # of arrays, it makes an array
    return text(a, lambda *values: "".join(values), *(text_of(a, o) for o in operands))


@function("concat_ws", 1, None)
def _concat_ws(a: Application, separator: Operand, *operands: Operand) -> Operand:
    """Nulls are left out."""
    between, parts = text_of(a, separator), [text_of(a, o) for o in operands]

    def value(values: Values) -> Value:
        by, each = between.value(values), [p.value(values) for p in parts]
        if by is None:
            return None
        if by is UNKNOWN or UNKNOWN in each:
            return UNKNOWN
        return a.decided(lambda: _bounded(by.join(v for v in each if v is not None)))

    return Operand(STRING, value)


@function("repeat", 2)
def _repeat(a: Application, operand: Operand, count: Operand) -> Operand:
    def repeated(value: str, times: int) -> str:
        _bounded("" if len(value) * times <= LONGEST_TEXT else " " * (LONGEST_TEXT + 1))
        return value * times

    return text(a, repeated, text_of(a, operand), count_of(a, count))


@function("space", 1)
def _space(a: Application, count: Operand) -> Operand:
    return text(a, lambda n: " " * min(n, LONGEST_TEXT + 1), count_of(a, count))


def _pad(names: str, place: Callable[[str, str], str]) -> None:
    def rule(a: Application, operand: Operand, width: Operand, *by: Operand) -> Operand:
        parts = [text_of(a, operand), count_of(a, width), *(text_of(a, b) for b in by)]
        return text(a, lambda value, n, fill=" ": _padded(value, n, fill, place), *parts)

    function(names, 2, 3)(rule)


def _padded(value: str, width: int, fill: str, place: Callable[[str, str], str]) -> str:
    if width > LONGEST_TEXT:
        raise Undecided(f"a text of more than {LONGEST_TEXT} characters")
    if len(value) >= width or not fill:
        return value[: max(0, width)]
    missing = width - len(value)
    return place(value, (fill * (missing // len(fill) + 1))[:missing])


_pad("lpad", lambda value, filling: filling + value)
_pad("rpad", lambda value, filling: value + filling)


# changed


@function("replace", 2, 3)
def _replace(a: Application, operand: Operand, search: Operand, *by: Operand) -> Operand:
    parts = [text_of(a, operand), text_of(a, search), *(text_of(a, b) for b in by)]
    return text(a, lambda value, old, new="": value.replace(old, new) if old else value, *parts)


@function("translate", 3)
def _translate(a: Application, operand: Operand, old: Operand, new: Operand) -> Operand:
    return text(a, _translated, text_of(a, operand), text_of(a, old), text_of(a, new))


def _translated(value: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for n, character in enumerate(old):
        table.setdefault(ord(character), new[n] if n < len(new) else None)
    return value.translate(table)


@syntax(exp.Trim, arguments="this position expression")
def _trim_syntax(a: Application) -> Operand:
    strip = {"": str.strip, "BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}.get(
        str(a.node.args.get("position") or "").upper()
    )
    if strip is None:
        raise a.not_understood()
    characters = a.node.args.get("expression")
    return _stripped(a, strip, a.operand(), *([a.evaluate(characters)] if characters is not None else []))


def _stripped(a: Application, strip: Callable[[str, str], str], operand: Operand, *characters: Operand) -> Operand:
    parts = [text_of(a, operand), *(text_of(a, c) for c in characters)]
    return text(a, lambda value, of=" ": strip(value, of) if of else value, *parts)


@function("ltrim", 1, 2)
def _ltrim(a: Application, *operands: Operand) -> Operand:
    """The characters come before the text."""
    return _stripped(a, str.lstrip, *reversed(operands))


@function("rtrim", 1, 2)
def _rtrim(a: Application, *operands: Operand) -> Operand:
    return _stripped(a, str.rstrip, *reversed(operands))


@function("btrim", 1, 2)
def _btrim(a: Application, *operands: Operand) -> Operand:
    return _stripped(a, str.strip, *operands)


# looked for


def _tests(name: str, test: Callable[[str, str], bool]) -> None:
    function(name, 2)(lambda a, this, part: a.computed(BOOLEAN, test, text_of(a, this), text_of(a, part)))


_tests("startswith", str.startswith)
_tests("endswith", str.endswith)
_tests("contains", lambda value, part: part in value)


@function("instr", 2)
def _instr(a: Application, operand: Operand, part: Operand) -> Operand:
    return a.computed(INT, lambda value, of: value.find(of) + 1, text_of(a, operand), text_of(a, part))


@function("locate position", 2)
def _locate(a: Application, part: Operand, operand: Operand) -> Operand:
    return _instr(a, operand, part)


@syntax(exp.StrPosition, arguments="this substr")
def _position_syntax(a: Application) -> Operand:
    return _instr(a, a.operand(), a.operand("substr"))


@syntax(exp.Like, arguments="this expression negate")
def _like_syntax(a: Application) -> Operand:
    return _maybe_negated(a, _like(a, a.operand(), a.operand("expression")))


@syntax(exp.ILike, arguments="this expression negate")
def _ilike_syntax(a: Application) -> Operand:
    return _maybe_negated(a, _ilike(a, a.operand(), a.operand("expression")))


def _maybe_negated(a: Application, operand: Operand) -> Operand:
    return negated(a, operand) if a.node.args.get("negate") else operand


@syntax(exp.Escape, arguments="this expression")
def _like_with_escape(a: Application) -> Operand:
    like, escape = a.node.this, a.node.expression
    if type(like) not in (exp.Like, exp.ILike) or type(escape) is not exp.Literal or not escape.is_string:
        raise a.not_understood()
    unnamed = [k for k, v in like.args.items() if k not in ("this", "expression", "negate") and v]
    if unnamed or len(escape.name) != 1:
        raise a.not_understood()
    rule = _like if type(like) is exp.Like else _ilike
    found = rule(a, a.evaluate(like.this), a.evaluate(like.expression), a.evaluate(escape))
    return negated(a, found) if like.args.get("negate") else found


@function("like", 2, 3)
def _like(a: Application, this: Operand, pattern: Operand, *escape: Operand) -> Operand:
    parts = [text_of(a, this), text_of(a, pattern), *(text_of(a, e) for e in escape)]
    return a.computed(BOOLEAN, _matches, *parts)


@function("ilike", 2, 3)
def _ilike(a: Application, this: Operand, pattern: Operand, *escape: Operand) -> Operand:
    def matches(value: str, like: str, by: str = "\\") -> bool:
        return _matches(_ascii_only(value).lower(), _ascii_only(like).lower(), by)

    parts = [text_of(a, this), text_of(a, pattern), *(text_of(a, e) for e in escape)]
    return a.computed(BOOLEAN, matches, *parts)


def _matches(value: str, pattern: str, escape: str = "\\") -> bool:
    """Whether a pattern of LIKE fits a text. Takes no longer than the product of their lengths."""
    parts = _parts(pattern, escape)
    at = part = 0
    after_any, retry_at = -1, 0
    while at < len(value):
        if part < len(parts) and parts[part] is _ANY:
            after_any, retry_at = part + 1, at
            part += 1
        elif part < len(parts) and parts[part] in (_ONE, value[at]):
            at, part = at + 1, part + 1
        elif after_any >= 0:  # the last % takes one more
            retry_at += 1
            at, part = retry_at, after_any
        else:
            return False
    return all(p is _ANY for p in parts[part:])


_ANY, _ONE = object(), object()


@lru_cache(maxsize=1024)
def _parts(like: str, escape: str) -> tuple[object, ...]:
    """Characters and wildcards of a pattern. Raises Undecided where Spark refuses it."""
    if len(escape) != 1 or len(like) > LONGEST_TEXT:
        raise Undecided("a pattern of LIKE is escaped by one character")
    parts, characters = list[object](), iter(like)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if not escaped or escaped not in ("%", "_", escape):
                raise Undecided(f"{like!r} escapes what needs no escape")
            parts.append(escaped)
        else:
            parts.append({"%": _ANY, "_": _ONE}.get(character, character))
    return tuple(parts)
