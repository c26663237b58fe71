"""Evaluation rules for texts. Characters are code points, and positions count from 1."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from nova_assets.sql.evaluation.casting import INT, MAX_TEXT_LENGTH, STRING
from nova_assets.sql.evaluation.operand import DATA_DEPENDENT, UNKNOWN, Operand, Undecided, Value, Values
from nova_assets.sql.evaluation.rule_registry import RuleContext, function_rule, syntax_rule

_MAX_POSITION = 2**30
"""Greatest position that is evaluated. Larger positions overflow in Spark."""

_TYPES_CAST_TO_TEXT = ("tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "decimal")


def as_text_operand(context: RuleContext, operand: Operand) -> Operand:
    """An argument cast to string. Raises NotUnderstood."""
    return context.implicit_cast(operand, STRING, *_TYPES_CAST_TO_TEXT)


def as_int_operand(context: RuleContext, operand: Operand) -> Operand:
    """An argument cast to int. Raises NotUnderstood."""
    return context.implicit_cast(operand, INT, "tinyint", "smallint")


def text_operand(context: RuleContext, compute: Callable[..., str], *operands: Operand) -> Operand:
    """A text computed from other values. A very long text is undecided."""
    return context.null_propagating_operand(STRING, lambda *values: _check_length(compute(*values)), *operands)


def _check_length(value: str) -> str:
    if len(value) > MAX_TEXT_LENGTH:
        raise Undecided(f"a text of more than {MAX_TEXT_LENGTH} characters")
    return value


def _register_text_function(names: str, transform: Callable[[str], str]) -> None:
    """Register a function that maps one text to a text."""
    function_rule(names, 1)(
        lambda context, operand: text_operand(context, transform, as_text_operand(context, operand))
    )


def require_ascii(value: str) -> str:
    if not value.isascii():
        raise Undecided(f"upper and lower case of {value!r} depend on the version of Java")
    return value


_register_text_function("upper ucase", lambda value: require_ascii(value).upper())
_register_text_function("lower lcase", lambda value: require_ascii(value).lower())
_register_text_function("reverse", lambda value: value[::-1])


@function_rule("length len char_length character_length", 1)
def _length(context: RuleContext, operand: Operand) -> Operand:
    return context.null_propagating_operand(INT, len, as_text_operand(context, operand))


@function_rule("ascii", 1)
def _ascii(context: RuleContext, operand: Operand) -> Operand:
    return context.null_propagating_operand(
        INT, lambda value: ord(value[0]) if value else 0, as_text_operand(context, operand)
    )


# substrings


@syntax_rule(exp.Substring, allowed_arguments="this start length")
def _substring_syntax(context: RuleContext) -> Operand:
    length = context.node.args.get("length")
    return _substring(
        context,
        context.operand(),
        context.operand("start"),
        *([context.compile_part(length)] if length is not None else []),
    )


@function_rule("substring substr", 2, 3)
def _substring(context: RuleContext, operand: Operand, start: Operand, *length: Operand) -> Operand:
    return text_operand(
        context,
        _substring_value,
        as_text_operand(context, operand),
        as_int_operand(context, start),
        *(as_int_operand(context, n) for n in length),
    )


def _substring_value(value: str, start: int, length: int | None = None) -> str:
    """The substring. A negative start counts from the end."""
    if max(abs(start), abs(length or 0)) > _MAX_POSITION:
        raise Undecided("Spark counts positions of a text in 32 bits")
    begin = start - 1 if start > 0 else len(value) + start if start < 0 else 0
    end = len(value) if length is None else begin + length
    return value[max(0, begin) : max(0, end)]


@syntax_rule(exp.Left, allowed_arguments="this expression")
def _left_syntax(context: RuleContext) -> Operand:
    return _left(context, context.operand(), context.operand("expression"))


@function_rule("left", 2)
def _left(context: RuleContext, operand: Operand, count: Operand) -> Operand:
    return text_operand(
        context, lambda value, n: value[: max(0, n)], as_text_operand(context, operand), as_int_operand(context, count)
    )


@syntax_rule(exp.Right, allowed_arguments="this expression")
def _right_syntax(context: RuleContext) -> Operand:
    return _right(context, context.operand(), context.operand("expression"))


@function_rule("right", 2)
def _right(context: RuleContext, operand: Operand, count: Operand) -> Operand:
    return text_operand(
        context,
        lambda value, n: value[-n:] if n > 0 else "",
        as_text_operand(context, operand),
        as_int_operand(context, count),
    )


@function_rule("split_part", 3)
def _split_part(context: RuleContext, operand: Operand, delimiter: Operand, number: Operand) -> Operand:
    return text_operand(
        context,
        _nth_part,
        as_text_operand(context, operand),
        as_text_operand(context, delimiter),
        as_int_operand(context, number),
    )


def _nth_part(text_value: str, delimiter: str, number: int) -> str:
    if number == 0:
        raise Undecided("parts of a text count from 1")
    parts = text_value.split(delimiter) if delimiter else [text_value]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


@function_rule("substring_index", 3)
def _substring_index(context: RuleContext, operand: Operand, delimiter: Operand, count: Operand) -> Operand:
    return text_operand(
        context,
        _text_around_delimiter,
        as_text_operand(context, operand),
        as_text_operand(context, delimiter),
        as_int_operand(context, count),
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
def _concat_syntax(context: RuleContext) -> Operand:
    return _concat(context, context.operand(), context.operand("expression"))


@function_rule("concat", 1, None)
def _concat(context: RuleContext, *operands: Operand) -> Operand:
    if any(o.type is None for o in operands):
        return DATA_DEPENDENT  # CONCAT of arrays returns an array
    return text_operand(context, lambda *values: "".join(values), *(as_text_operand(context, o) for o in operands))


@function_rule("concat_ws", 1, None)
def _concat_ws(context: RuleContext, separator: Operand, *operands: Operand) -> Operand:
    """``CONCAT_WS``, which skips nulls."""
    between, parts = as_text_operand(context, separator), [as_text_operand(context, o) for o in operands]

    def value(values: Values) -> Value:
        separator_text, part_values = between.value(values), [p.value(values) for p in parts]
        if separator_text is None:
            return None
        if separator_text is UNKNOWN or UNKNOWN in part_values:
            return UNKNOWN
        return context.call_catching_undecided(
            lambda: _check_length(separator_text.join(v for v in part_values if v is not None))
        )

    return Operand(STRING, value)


@function_rule("repeat", 2)
def _repeat(context: RuleContext, operand: Operand, count: Operand) -> Operand:
    def repeated(value: str, times: int) -> str:
        _check_length("" if len(value) * times <= MAX_TEXT_LENGTH else " " * (MAX_TEXT_LENGTH + 1))
        return value * times

    return text_operand(context, repeated, as_text_operand(context, operand), as_int_operand(context, count))


@function_rule("space", 1)
def _space(context: RuleContext, count: Operand) -> Operand:
    return text_operand(context, lambda n: " " * min(n, MAX_TEXT_LENGTH + 1), as_int_operand(context, count))


def _register_pad_function(names: str, combine: Callable[[str, str], str]) -> None:
    def rule(context: RuleContext, operand: Operand, width: Operand, *fill_operand: Operand) -> Operand:
        parts = [
            as_text_operand(context, operand),
            as_int_operand(context, width),
            *(as_text_operand(context, b) for b in fill_operand),
        ]
        return text_operand(context, lambda value, n, fill=" ": _pad_text(value, n, fill, combine), *parts)

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
def _replace(context: RuleContext, operand: Operand, search: Operand, *replacement: Operand) -> Operand:
    parts = [
        as_text_operand(context, operand),
        as_text_operand(context, search),
        *(as_text_operand(context, b) for b in replacement),
    ]
    return text_operand(context, lambda value, old, new="": value.replace(old, new) if old else value, *parts)


@function_rule("translate", 3)
def _translate(context: RuleContext, operand: Operand, old: Operand, new: Operand) -> Operand:
    return text_operand(
        context,
        _translate_text,
        as_text_operand(context, operand),
        as_text_operand(context, old),
        as_text_operand(context, new),
    )


def _translate_text(value: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for n, character in enumerate(old):
        table.setdefault(ord(character), new[n] if n < len(new) else None)
    return value.translate(table)


@syntax_rule(exp.Trim, allowed_arguments="this position expression")
def _trim_syntax(context: RuleContext) -> Operand:
    strip = {"": str.strip, "BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}.get(
        str(context.node.args.get("position") or "").upper()
    )
    if strip is None:
        raise context.not_understood()
    characters = context.node.args.get("expression")
    return _strip_operand(
        context, strip, context.operand(), *([context.compile_part(characters)] if characters is not None else [])
    )


def _strip_operand(
    context: RuleContext, strip: Callable[[str, str], str], operand: Operand, *characters: Operand
) -> Operand:
    parts = [as_text_operand(context, operand), *(as_text_operand(context, c) for c in characters)]
    return text_operand(context, lambda value, of=" ": strip(value, of) if of else value, *parts)


@function_rule("ltrim", 1, 2)
def _ltrim(context: RuleContext, *operands: Operand) -> Operand:
    """``LTRIM``, whose optional first argument holds the characters to trim."""
    return _strip_operand(context, str.lstrip, *reversed(operands))


@function_rule("rtrim", 1, 2)
def _rtrim(context: RuleContext, *operands: Operand) -> Operand:
    return _strip_operand(context, str.rstrip, *reversed(operands))


@function_rule("btrim", 1, 2)
def _btrim(context: RuleContext, *operands: Operand) -> Operand:
    return _strip_operand(context, str.strip, *operands)
