"""Evaluation rules for tests and searches of texts: LIKE, INSTR, CONTAINS and similar."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from sqlglot import exp

from nova_assets.sql.evaluation.casting import BOOLEAN, INT, MAX_TEXT_LENGTH
from nova_assets.sql.evaluation.logic import negate
from nova_assets.sql.evaluation.operand import Operand, Undecided
from nova_assets.sql.evaluation.rule_registry import RuleContext, function_rule, syntax_rule
from nova_assets.sql.evaluation.texts import as_text_operand, require_ascii


def _register_text_test(name: str, is_match: Callable[[str, str], bool]) -> None:
    function_rule(name, 2)(
        lambda context, this, part: context.null_propagating_operand(
            BOOLEAN, is_match, as_text_operand(context, this), as_text_operand(context, part)
        )
    )


_register_text_test("startswith", str.startswith)
_register_text_test("endswith", str.endswith)
_register_text_test("contains", lambda value, part: part in value)


@function_rule("instr", 2)
def _instr(context: RuleContext, operand: Operand, part: Operand) -> Operand:
    return context.null_propagating_operand(
        INT, lambda value, of: value.find(of) + 1, as_text_operand(context, operand), as_text_operand(context, part)
    )


@function_rule("locate position", 2)
def _locate(context: RuleContext, part: Operand, operand: Operand) -> Operand:
    return _instr(context, operand, part)


@syntax_rule(exp.StrPosition, allowed_arguments="this substr")
def _position_syntax(context: RuleContext) -> Operand:
    return _instr(context, context.operand(), context.operand("substr"))


@syntax_rule(exp.Like, allowed_arguments="this expression negate")
def _like_syntax(context: RuleContext) -> Operand:
    return _negate_if_written(context, _like(context, context.operand(), context.operand("expression")))


@syntax_rule(exp.ILike, allowed_arguments="this expression negate")
def _ilike_syntax(context: RuleContext) -> Operand:
    return _negate_if_written(context, _ilike(context, context.operand(), context.operand("expression")))


def _negate_if_written(context: RuleContext, operand: Operand) -> Operand:
    return negate(context, operand) if context.node.args.get("negate") else operand


@syntax_rule(exp.Escape, allowed_arguments="this expression")
def _like_with_escape(context: RuleContext) -> Operand:
    like, escape = context.node.this, context.node.expression
    if type(like) not in (exp.Like, exp.ILike) or type(escape) is not exp.Literal or not escape.is_string:
        raise context.not_understood()
    unsupported = [k for k, v in like.args.items() if k not in ("this", "expression", "negate") and v]
    if unsupported or len(escape.name) != 1:
        raise context.not_understood()
    rule = _like if type(like) is exp.Like else _ilike
    matches = rule(
        context, context.compile_part(like.this), context.compile_part(like.expression), context.compile_part(escape)
    )
    return negate(context, matches) if like.args.get("negate") else matches


@function_rule("like", 2, 3)
def _like(context: RuleContext, this: Operand, pattern: Operand, *escape: Operand) -> Operand:
    parts = [
        as_text_operand(context, this),
        as_text_operand(context, pattern),
        *(as_text_operand(context, e) for e in escape),
    ]
    return context.null_propagating_operand(BOOLEAN, _matches_like, *parts)


@function_rule("ilike", 2, 3)
def _ilike(context: RuleContext, this: Operand, pattern: Operand, *escape: Operand) -> Operand:
    def matches(value: str, like: str, escape_character: str = "\\") -> bool:
        return _matches_like(require_ascii(value).lower(), require_ascii(like).lower(), escape_character)

    parts = [
        as_text_operand(context, this),
        as_text_operand(context, pattern),
        *(as_text_operand(context, e) for e in escape),
    ]
    return context.null_propagating_operand(BOOLEAN, matches, *parts)


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
