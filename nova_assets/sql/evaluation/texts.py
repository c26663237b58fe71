"""Evaluation rules for texts. Characters are code points, and positions count from 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sqlglot import exp

from nova_assets.sql.evaluation.casting import BOOLEAN, INT, MAX_TEXT_LENGTH, STRING
from nova_assets.sql.evaluation.logic import negate
from nova_assets.sql.evaluation.operand import UNKNOWN, Operand, Undecided, Value, Values
from nova_assets.sql.evaluation.rule_registry import (
    RuleContext,
    apply_function,
    check_text_length,
    function_rule,
    register_function,
    register_function_syntax,
    syntax_rule,
)

_MAX_POSITION = 2**30
"""Greatest position that is evaluated. Larger positions overflow in Spark."""


def _require_ascii(value: str) -> str:
    if not value.isascii():
        raise Undecided(f"upper and lower case of {value!r} depend on the version of Java")
    return value


register_function("upper ucase", "text", STRING, lambda value: _require_ascii(value).upper())
register_function("lower lcase", "text", STRING, lambda value: _require_ascii(value).lower())
register_function("reverse", "text", STRING, lambda value: value[::-1])
register_function("length len char_length character_length", "text", INT, len)
register_function("ascii", "text", INT, lambda value: ord(value[0]) if value else 0)
register_function("startswith", "text text", BOOLEAN, str.startswith)
register_function("endswith", "text text", BOOLEAN, str.endswith)
register_function("contains", "text text", BOOLEAN, lambda value, part: part in value)
register_function("instr", "text text", INT, lambda value, part: value.find(part) + 1)
register_function("locate position", "text text", INT, lambda part, value: value.find(part) + 1)
register_function_syntax(exp.StrPosition, "this substr", "instr")


# parts of a text


def _substring(value: str, start: int, length: int | None = None) -> str:
    """The substring. A negative start counts from the end."""
    if max(abs(start), abs(length or 0)) > _MAX_POSITION:
        raise Undecided("Spark counts positions of a text in 32 bits")
    begin = start - 1 if start > 0 else len(value) + start if start < 0 else 0
    end = len(value) if length is None else begin + length
    return value[max(0, begin) : max(0, end)]


def _split_part(value: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise Undecided("parts of a text count from 1")
    parts = value.split(delimiter) if delimiter else [value]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _substring_index(value: str, delimiter: str, count: int) -> str:
    """The text before the count-th delimiter, or, for a negative count, after the count-th delimiter from the end.
    Delimiters may overlap.
    """
    if not delimiter or not count:
        return ""
    if count < 0:  # the same from the other end
        return _substring_index(value[::-1], delimiter[::-1], -count)[::-1]
    at = -1
    for _ in range(count):
        at = value.find(delimiter, at + 1)
        if at < 0:
            return value
    return value[:at]


register_function("substring substr", "text int int?", STRING, _substring)
register_function_syntax(exp.Substring, "this start length", "substring")
register_function("left", "text int", STRING, lambda value, count: value[: max(0, count)])
register_function("right", "text int", STRING, lambda value, count: value[-count:] if count > 0 else "")
register_function("split_part", "text text int", STRING, _split_part)
register_function("substring_index", "text text int", STRING, _substring_index)


# concatenation and padding


@function_rule("concat_ws", 1, None)
def _concat_ws(context: RuleContext, *operands: Operand) -> Operand:
    """``CONCAT_WS``, which skips nulls."""
    between, *parts = [context.cast_argument(o, "text") for o in operands]

    def value(values: Values) -> Value:
        separator, part_values = between.value(values), [p.value(values) for p in parts]
        if separator is None:
            return None
        if separator is UNKNOWN or UNKNOWN in part_values:
            return UNKNOWN
        return context.call_catching_undecided(separator.join, [v for v in part_values if v is not None])

    return Operand(STRING, value)


def _repeat(value: str, count: int) -> str:
    check_text_length(len(value) * count)
    return value * count


def _register_pad_function(name: str, combine: Callable[[str, str], str]) -> None:
    def pad(value: str, width: int, fill: str = " ") -> str:
        check_text_length(width)
        if len(value) >= width or not fill:
            return value[: max(0, width)]
        missing = width - len(value)
        return combine(value, (fill * (missing // len(fill) + 1))[:missing])

    register_function(name, "text int text?", STRING, pad)


register_function("concat", "text text*", STRING, lambda *values: "".join(values))
register_function_syntax(exp.DPipe, "this expression", "concat", ignored="safe")
register_function("repeat", "text int", STRING, _repeat)
register_function("space", "int", STRING, lambda count: _repeat(" ", count))
_register_pad_function("lpad", lambda value, filling: filling + value)
_register_pad_function("rpad", lambda value, filling: value + filling)


# replacement and trimming


def _translate(value: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for n, character in enumerate(old):
        table.setdefault(ord(character), new[n] if n < len(new) else None)
    return value.translate(table)


def _strip(strip: Callable[[str, str], str], value: str, characters: str = " ") -> str:
    return strip(value, characters) if characters else value


register_function(
    "replace", "text text text?", STRING, lambda value, old, new="": value.replace(old, new) if old else value
)
register_function("translate", "text text text", STRING, _translate)
register_function("btrim", "text text?", STRING, lambda *texts: _strip(str.strip, *texts))
# the optional first argument of LTRIM and RTRIM holds the characters to trim
register_function("ltrim", "text text?", STRING, lambda *texts: _strip(str.lstrip, *reversed(texts)))
register_function("rtrim", "text text?", STRING, lambda *texts: _strip(str.rstrip, *reversed(texts)))


@syntax_rule(exp.Trim, allowed_arguments="this position expression")
def _trim(context: RuleContext) -> Operand:
    position = str(context.node.args.get("position") or "").upper()
    if position in ("", "BOTH"):
        return apply_function(context, "btrim", *context.operands("this", "expression"))
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position)
    if name is None:
        raise context.not_understood()
    return apply_function(context, name, *context.operands("expression", "this"))


# LIKE


@syntax_rule(exp.Like, exp.ILike, allowed_arguments="this expression negate")
def _like_syntax(context: RuleContext) -> Operand:
    return _like(context, context.node)


@syntax_rule(exp.Escape, allowed_arguments="this expression")
def _like_with_escape(context: RuleContext) -> Operand:
    like, escape = context.node.this, context.node.expression
    if type(like) not in (exp.Like, exp.ILike) or type(escape) is not exp.Literal or not escape.is_string:
        raise context.not_understood()
    unsupported = [k for k, v in like.args.items() if k not in ("this", "expression", "negate") and v]
    if unsupported or len(escape.name) != 1:
        raise context.not_understood()
    return _like(context, like, escape)


def _like(context: RuleContext, like: exp.Expr, *escape: exp.Expr) -> Operand:
    operands = map(context.compile_part, (like.this, like.expression, *escape))
    matches = apply_function(context, "like" if type(like) is exp.Like else "ilike", *operands)
    return negate(context, matches) if like.args.get("negate") else matches


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
        raise Undecided("the escape of a LIKE pattern is one character")
    parts, characters = list[object](), iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if not escaped or escaped not in ("%", "_", escape):
                raise Undecided(f"{pattern!r} escapes a character that needs no escape")
            parts.append(escaped)
        else:
            parts.append({"%": _ANY_CHARACTERS, "_": _ONE_CHARACTER}.get(character, character))
    return tuple(parts)


def _matches_ilike(value: str, pattern: str, escape: str = "\\") -> bool:
    return _matches_like(_require_ascii(value).lower(), _require_ascii(pattern).lower(), escape)


register_function("like", "text text text?", BOOLEAN, _matches_like)
register_function("ilike", "text text text?", BOOLEAN, _matches_ilike)
