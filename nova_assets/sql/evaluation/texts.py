"""Evaluation rules for texts. Characters are code points, and positions count from 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sqlglot import exp

from nova_assets.sql.evaluation.casting import BOOLEAN, INT, MAX_TEXT_LENGTH, STRING
from nova_assets.sql.evaluation.logic import negate
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, Operand, Undecided
from nova_assets.sql.evaluation.rule_registry import Application, function_rule, syntax_rule
from nova_assets.sql.evaluation.values import UNKNOWN, Value, Values

_MAX_POSITION = 2**30
"""Greatest position that is evaluated. Larger positions overflow in Spark."""

_TYPES_CAST_TO_TEXT = ("tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "decimal")


def as_text_operand(a: Application, operand: Operand) -> Operand:
    """An argument cast to string. Raises NotUnderstood."""
    return a.implicit_cast(operand, STRING, *_TYPES_CAST_TO_TEXT)


def as_int_operand(a: Application, operand: Operand) -> Operand:
    """An argument cast to int. Raises NotUnderstood."""
    return a.implicit_cast(operand, INT, "tinyint", "smallint")


def text_operand(a: Application, compute: Callable[..., str], *operands: Operand) -> Operand:
    """A text computed from other values. A very long text is undecided."""
    return a.null_propagating(STRING, lambda *values: _check_length(compute(*values)), *operands)


def _check_length(value: str) -> str:
    if len(value) > MAX_TEXT_LENGTH:
        raise Undecided(f"a text of more than {MAX_TEXT_LENGTH} characters")
    return value


def _register_text_function(names: str, transform: Callable[[str], str]) -> None:
    """Register a function that maps one text to a text."""
    function_rule(names, 1)(lambda a, operand: text_operand(a, transform, as_text_operand(a, operand)))


def _require_ascii(value: str) -> str:
    if not value.isascii():
        raise Undecided(f"upper and lower case of {value!r} depend on the version of Java")
    return value


_register_text_function("upper ucase", lambda value: _require_ascii(value).upper())
_register_text_function("lower lcase", lambda value: _require_ascii(value).lower())
_register_text_function("reverse", lambda value: value[::-1])


@function_rule("length len char_length character_length", 1)
def _length(a: Application, operand: Operand) -> Operand:
    return a.null_propagating(INT, len, as_text_operand(a, operand))


@function_rule("ascii", 1)
def _ascii(a: Application, operand: Operand) -> Operand:
    return a.null_propagating(INT, lambda value: ord(value[0]) if value else 0, as_text_operand(a, operand))


# substrings


@syntax_rule(exp.Substring, allowed_arguments="this start length")
def _substring_syntax(a: Application) -> Operand:
    length = a.node.args.get("length")
    return _substring(a, a.operand(), a.operand("start"), *([a.evaluate(length)] if length is not None else []))


@function_rule("substring substr", 2, 3)
def _substring(a: Application, operand: Operand, start: Operand, *length: Operand) -> Operand:
    return text_operand(
        a,
        _substring_value,
        as_text_operand(a, operand),
        as_int_operand(a, start),
        *(as_int_operand(a, n) for n in length),
    )


def _substring_value(value: str, start: int, length: int | None = None) -> str:
    """The substring. A negative start counts from the end."""
    if max(abs(start), abs(length or 0)) > _MAX_POSITION:
        raise Undecided("Spark counts positions of a text in 32 bits")
    begin = start - 1 if start > 0 else len(value) + start if start < 0 else 0
    end = len(value) if length is None else begin + length
    return value[max(0, begin) : max(0, end)]


@syntax_rule(exp.Left, allowed_arguments="this expression")
def _left_syntax(a: Application) -> Operand:
    return _left(a, a.operand(), a.operand("expression"))


@function_rule("left", 2)
def _left(a: Application, operand: Operand, count: Operand) -> Operand:
    return text_operand(a, lambda value, n: value[: max(0, n)], as_text_operand(a, operand), as_int_operand(a, count))


@syntax_rule(exp.Right, allowed_arguments="this expression")
def _right_syntax(a: Application) -> Operand:
    return _right(a, a.operand(), a.operand("expression"))


@function_rule("right", 2)
def _right(a: Application, operand: Operand, count: Operand) -> Operand:
    return text_operand(
        a, lambda value, n: value[-n:] if n > 0 else "", as_text_operand(a, operand), as_int_operand(a, count)
    )


@function_rule("split_part", 3)
def _split_part(a: Application, operand: Operand, delimiter: Operand, number: Operand) -> Operand:
    return text_operand(
        a, _nth_part, as_text_operand(a, operand), as_text_operand(a, delimiter), as_int_operand(a, number)
    )


def _nth_part(text_value: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise Undecided("parts of a text count from 1")
    parts = text_value.split(delimiter) if delimiter else [text_value]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


@function_rule("substring_index", 3)
def _substring_index(a: Application, operand: Operand, delimiter: Operand, count: Operand) -> Operand:
    return text_operand(
        a, _text_around_delimiter, as_text_operand(a, operand), as_text_operand(a, delimiter), as_int_operand(a, count)
    )


def _text_around_delimiter(value: str, delimiter: str, count: int) -> str:
    """The text before the count-th delimiter, or, for a negative count, after the count-th delimiter from the end.
    Delimiters may overlap.
    """
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


# concatenation and padding


@syntax_rule(exp.DPipe, allowed_arguments="this expression safe")
def _concat_syntax(a: Application) -> Operand:
    return _concat(a, a.operand(), a.operand("expression"))


@function_rule("concat", 1, None)
def _concat(a: Application, *operands: Operand) -> Operand:
    if any(o.type is None for o in operands):
        return DATA_DEPENDENT  # CONCAT of arrays returns an array
    return text_operand(a, lambda *values: "".join(values), *(as_text_operand(a, o) for o in operands))


@function_rule("concat_ws", 1, None)
def _concat_ws(a: Application, separator: Operand, *operands: Operand) -> Operand:
    """``CONCAT_WS``, which skips nulls."""
    between, parts = as_text_operand(a, separator), [as_text_operand(a, o) for o in operands]

    def value(values: Values) -> Value:
        by, each = between.value(values), [p.value(values) for p in parts]
        if by is None:
            return None
        if by is UNKNOWN or UNKNOWN in each:
            return UNKNOWN
        return a.call_catching_undecided(lambda: _check_length(by.join(v for v in each if v is not None)))

    return Operand(STRING, value)


@function_rule("repeat", 2)
def _repeat(a: Application, operand: Operand, count: Operand) -> Operand:
    def repeated(value: str, times: int) -> str:
        _check_length("" if len(value) * times <= MAX_TEXT_LENGTH else " " * (MAX_TEXT_LENGTH + 1))
        return value * times

    return text_operand(a, repeated, as_text_operand(a, operand), as_int_operand(a, count))


@function_rule("space", 1)
def _space(a: Application, count: Operand) -> Operand:
    return text_operand(a, lambda n: " " * min(n, MAX_TEXT_LENGTH + 1), as_int_operand(a, count))


def _register_pad_function(names: str, combine: Callable[[str, str], str]) -> None:
    def rule(a: Application, operand: Operand, width: Operand, *fill_operand: Operand) -> Operand:
        parts = [as_text_operand(a, operand), as_int_operand(a, width), *(as_text_operand(a, b) for b in fill_operand)]
        return text_operand(a, lambda value, n, fill=" ": _pad_text(value, n, fill, combine), *parts)

    function_rule(names, 2, 3)(rule)


def _pad_text(value: str, width: int, fill: str, combine: Callable[[str, str], str]) -> str:
    if width > MAX_TEXT_LENGTH:
        raise Undecided(f"a text of more than {MAX_TEXT_LENGTH} characters")
    if len(value) >= width or not fill:
        return value[: max(0, width)]
    missing = width - len(value)
    return combine(value, (fill * (missing // len(fill) + 1))[:missing])


_register_pad_function("lpad", lambda value, filling: filling + value)
_register_pad_function("rpad", lambda value, filling: value + filling)


# replacement and trimming


@function_rule("replace", 2, 3)
def _replace(a: Application, operand: Operand, search: Operand, *replacement: Operand) -> Operand:
    parts = [as_text_operand(a, operand), as_text_operand(a, search), *(as_text_operand(a, b) for b in replacement)]
    return text_operand(a, lambda value, old, new="": value.replace(old, new) if old else value, *parts)


@function_rule("translate", 3)
def _translate(a: Application, operand: Operand, old: Operand, new: Operand) -> Operand:
    return text_operand(
        a, _translate_text, as_text_operand(a, operand), as_text_operand(a, old), as_text_operand(a, new)
    )


def _translate_text(value: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for n, character in enumerate(old):
        table.setdefault(ord(character), new[n] if n < len(new) else None)
    return value.translate(table)


@syntax_rule(exp.Trim, allowed_arguments="this position expression")
def _trim_syntax(a: Application) -> Operand:
    strip = {"": str.strip, "BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}.get(
        str(a.node.args.get("position") or "").upper()
    )
    if strip is None:
        raise a.not_understood()
    characters = a.node.args.get("expression")
    return _strip_operand(a, strip, a.operand(), *([a.evaluate(characters)] if characters is not None else []))


def _strip_operand(a: Application, strip: Callable[[str, str], str], operand: Operand, *characters: Operand) -> Operand:
    parts = [as_text_operand(a, operand), *(as_text_operand(a, c) for c in characters)]
    return text_operand(a, lambda value, of=" ": strip(value, of) if of else value, *parts)


@function_rule("ltrim", 1, 2)
def _ltrim(a: Application, *operands: Operand) -> Operand:
    """``LTRIM``, whose optional first argument holds the characters to trim."""
    return _strip_operand(a, str.lstrip, *reversed(operands))


@function_rule("rtrim", 1, 2)
def _rtrim(a: Application, *operands: Operand) -> Operand:
    return _strip_operand(a, str.rstrip, *reversed(operands))


@function_rule("btrim", 1, 2)
def _btrim(a: Application, *operands: Operand) -> Operand:
    return _strip_operand(a, str.strip, *operands)


# searching


def _register_text_test(name: str, is_match: Callable[[str, str], bool]) -> None:
    function_rule(name, 2)(
        lambda a, this, part: a.null_propagating(BOOLEAN, is_match, as_text_operand(a, this), as_text_operand(a, part))
    )


_register_text_test("startswith", str.startswith)
_register_text_test("endswith", str.endswith)
_register_text_test("contains", lambda value, part: part in value)


@function_rule("instr", 2)
def _instr(a: Application, operand: Operand, part: Operand) -> Operand:
    return a.null_propagating(
        INT, lambda value, of: value.find(of) + 1, as_text_operand(a, operand), as_text_operand(a, part)
    )


@function_rule("locate position", 2)
def _locate(a: Application, part: Operand, operand: Operand) -> Operand:
    return _instr(a, operand, part)


@syntax_rule(exp.StrPosition, allowed_arguments="this substr")
def _position_syntax(a: Application) -> Operand:
    return _instr(a, a.operand(), a.operand("substr"))


@syntax_rule(exp.Like, allowed_arguments="this expression negate")
def _like_syntax(a: Application) -> Operand:
    return _negate_if_written(a, _like(a, a.operand(), a.operand("expression")))


@syntax_rule(exp.ILike, allowed_arguments="this expression negate")
def _ilike_syntax(a: Application) -> Operand:
    return _negate_if_written(a, _ilike(a, a.operand(), a.operand("expression")))


def _negate_if_written(a: Application, operand: Operand) -> Operand:
    return negate(a, operand) if a.node.args.get("negate") else operand


@syntax_rule(exp.Escape, allowed_arguments="this expression")
def _like_with_escape(a: Application) -> Operand:
    like, escape = a.node.this, a.node.expression
    if type(like) not in (exp.Like, exp.ILike) or type(escape) is not exp.Literal or not escape.is_string:
        raise a.not_understood()
    unnamed = [k for k, v in like.args.items() if k not in ("this", "expression", "negate") and v]
    if unnamed or len(escape.name) != 1:
        raise a.not_understood()
    rule = _like if type(like) is exp.Like else _ilike
    found = rule(a, a.evaluate(like.this), a.evaluate(like.expression), a.evaluate(escape))
    return negate(a, found) if like.args.get("negate") else found


@function_rule("like", 2, 3)
def _like(a: Application, this: Operand, pattern: Operand, *escape: Operand) -> Operand:
    parts = [as_text_operand(a, this), as_text_operand(a, pattern), *(as_text_operand(a, e) for e in escape)]
    return a.null_propagating(BOOLEAN, _matches_like, *parts)


@function_rule("ilike", 2, 3)
def _ilike(a: Application, this: Operand, pattern: Operand, *escape: Operand) -> Operand:
    def matches(value: str, like: str, by: str = "\\") -> bool:
        return _matches_like(_require_ascii(value).lower(), _require_ascii(like).lower(), by)

    parts = [as_text_operand(a, this), as_text_operand(a, pattern), *(as_text_operand(a, e) for e in escape)]
    return a.null_propagating(BOOLEAN, matches, *parts)


def _matches_like(value: str, pattern: str, escape: str = "\\") -> bool:
    """Whether a text matches a LIKE pattern, in time proportional to the product of their lengths."""
    parts = _parse_like_pattern(pattern, escape)
    at = part = 0
    after_any, retry_at = -1, 0
    while at < len(value):
        if part < len(parts) and parts[part] is _ANY_CHARACTERS:
            after_any, retry_at = part + 1, at
            part += 1
        elif part < len(parts) and parts[part] in (_ONE_CHARACTER, value[at]):
            at, part = at + 1, part + 1
        elif after_any >= 0:  # backtrack: the last % matches one more character
            retry_at += 1
            at, part = retry_at, after_any
        else:
            return False
    return all(p is _ANY_CHARACTERS for p in parts[part:])


_ANY_CHARACTERS, _ONE_CHARACTER = object(), object()


@lru_cache(maxsize=1024)
def _parse_like_pattern(pattern: str, escape: str) -> tuple[object, ...]:
    """Characters and wildcards of a LIKE pattern. Raises Undecided if Spark rejects the pattern."""
    if len(escape) != 1 or len(pattern) > MAX_TEXT_LENGTH:
        raise Undecided("a pattern of LIKE is escaped by one character")
    parts, characters = list[object](), iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if not escaped or escaped not in ("%", "_", escape):
                raise Undecided(f"{pattern!r} escapes what needs no escape")
            parts.append(escaped)
        else:
            parts.append({"%": _ANY_CHARACTERS, "_": _ONE_CHARACTER}.get(character, character))
    return tuple(parts)
