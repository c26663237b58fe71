"""Return types of Spark's functions that depend on the arguments. ``fixed_return_types`` has the others.

A call has no type here if its function has no rule or the rule does not cover the arguments. Spark then derives the
type, or the author writes a CAST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from sqlglot import exp

from nova_assets.errors import DefinitionError
from nova_assets.model.schema import DataType, parse_ddl, parse_type
from nova_assets.sql.types.fixed_return_types import FUNCTIONS_BY_FIXED_TYPE
from nova_assets.sql.types.widening import (
    VOID,
    arithmetic_type,
    array_type,
    decimal_up_to_max,
    element_type,
    is_integral,
    is_number,
    key_type,
    map_type,
    struct_type,
    whole_number_type,
    wider_type,
)


@dataclass(frozen=True, slots=True)
class TypedArgument:
    """An argument of a call.

    Args:
        type: its Spark type, or None if unknown.
        node: its syntax node.
    """

    type: DataType | None
    node: exp.Expr


Arguments: TypeAlias = Sequence[TypedArgument]

TypeRule: TypeAlias = Callable[[Arguments], DataType | None]
"""Derives the type of a call. None if the type is unknown."""


def _fixed_type_rule(type_name: str) -> TypeRule:
    type_ = parse_type(type_name)
    return lambda arguments: type_


def _rule_from_types(argument_count: int, transform: Callable[..., DataType | None]) -> TypeRule:
    """The rule of a function that takes so many arguments, from their types."""
    return lambda arguments: transform(*(a.type for a in arguments)) if len(arguments) == argument_count else None


def _rule_from_first_type(transform: Callable[[DataType | None], DataType | None]) -> TypeRule:
    return lambda arguments: transform(arguments[0].type) if arguments else None


def common_type(types: Sequence[DataType | None]) -> DataType | None:
    """The common type of all types. None if one is unknown."""
    if not types:
        return None
    return reduce(lambda a, b: None if a is None or b is None else wider_type(a, b), types)


def _common_type_rule(first_position: int = 0) -> TypeRule:
    return lambda arguments: common_type([a.type for a in arguments[first_position:]])


def _widened_array_type_rule(element_position: int) -> TypeRule:
    """The rule for functions of an array, first, and a value of its element type."""

    def rule(arguments: Arguments) -> DataType | None:
        if len(arguments) != element_position + 1 or element_type(arguments[0].type) is None:
            return None
        return array_type(common_type([element_type(arguments[0].type), arguments[element_position].type]))

    return rule


def _greatest_or_least_type(arguments: Arguments) -> DataType | None:
    """The common type of numbers, or of values of one type. None for other arguments, which Spark rejects."""
    types = [a.type for a in arguments if a.type != VOID]
    if len(arguments) < 2 or not (len(set(types)) <= 1 or all(t is not None and is_number(t) for t in types)):
        return None
    return common_type([a.type for a in arguments])


def _text_or_binary_type(type_: DataType | None) -> DataType | None:
    """Binary for binary, otherwise string."""
    return None if type_ is None else type_ if type_.name == "binary" else DataType("string")


def _concat_type(arguments: Arguments) -> DataType | None:
    types = [a.type for a in arguments]
    if not types:
        return DataType("string")
    if any(t is None for t in types):
        return None
    if any(t.name == "array" for t in types if t is not None):
        return common_type(types)
    return DataType("binary" if all(t == DataType("binary") for t in types) else "string")


def _arithmetic_rule(symbol: str) -> TypeRule:
    def rule(arguments: Arguments) -> DataType | None:
        if len(arguments) != 2:
            return None
        (a, b), (left, right) = (x.type for x in arguments), (x.node for x in arguments)
        if a is None or b is None:
            return None
        return arithmetic_type(
            symbol, _literal_type_beside_decimal(left, a, b), _literal_type_beside_decimal(right, b, a)
        )

    return rule


def _literal_type_beside_decimal(node: exp.Expr, type_: DataType, other_type: DataType) -> DataType:
    """Type of an operand beside another. An integer literal beside a decimal has as many digits as it needs."""
    plain = node.unnest()
    plain = plain.this if isinstance(plain, exp.Neg) else plain
    if other_type.name == "decimal" and is_integral(type_) and isinstance(plain, exp.Literal):
        return DataType("decimal", (len(plain.name.lstrip("0")) or 1, 0))
    return type_


def _round_type(arguments: Arguments) -> DataType | None:
    """Type of a number rounded to some digits, which are the second argument."""
    type_ = arguments[0].type if arguments else None
    if type_ is None or type_.name != "decimal":
        return type_ if type_ is None or is_number(type_) else DataType("double")
    wanted = _integer_literal_value(arguments[1].node) if len(arguments) > 1 else 0
    if wanted is None:
        return None
    precision, scale = type_.args
    kept = min(max(wanted, 0), scale)
    return decimal_up_to_max(max(precision - scale + 1, 1 - wanted) + kept, kept)


def _integer_literal_value(node: exp.Expr) -> int | None:
    """The value of an integer literal. None for other nodes."""
    if isinstance(node, exp.Neg):
        inner = _integer_literal_value(node.this)
        return None if inner is None else -inner
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None


def _sum_type(type_: DataType | None) -> DataType | None:
    """Type of a sum. None for booleans, which Spark does not add."""
    if type_ is None or type_.name == "boolean":
        return None
    if is_integral(type_):
        return DataType("bigint")
    if type_.name == "decimal":
        return decimal_up_to_max(type_.args[0] + 10, type_.args[1])
    return DataType("double") if is_number(type_) or type_.name in ("string", "void") else None


def _average_type(type_: DataType | None) -> DataType | None:
    if type_ is None:
        return None
    if type_.name == "decimal":
        return decimal_up_to_max(type_.args[0] + 4, type_.args[1] + 4)
    return DataType("double") if is_number(type_) or type_.name in ("string", "void") else None


def _datediff_type(arguments: Arguments) -> DataType | None:
    """Type of ``datediff``, which takes an optional unit before its two other arguments."""
    return DataType("int" if len(arguments) == 2 else "bigint") if len(arguments) in (2, 3) else None


def _dateadd_type(arguments: Arguments) -> DataType | None:
    """Type of ``dateadd``, which takes an optional unit before its two other arguments."""
    if len(arguments) == 2:
        return DataType("date")
    moment = arguments[2].type if len(arguments) == 3 else None
    return moment if moment is None or moment.name == "timestamp_ntz" else DataType("timestamp")


def _string_literal(node: exp.Expr) -> str | None:
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def _type_from_schema_literal(arguments: Arguments) -> DataType | None:
    """Type of ``from_json`` with a literal schema."""
    schema_text = _string_literal(arguments[1].node) if len(arguments) > 1 else None
    if schema_text is None:
        return None
    try:
        return DataType("struct", fields=parse_ddl(schema_text).fields)
    except DefinitionError:
        pass
    try:
        return parse_type(schema_text)
    except DefinitionError:
        return None


def _struct_type(arguments: Arguments) -> DataType | None:
    return struct_type([(_field_name(a.node, n), a.type) for n, a in enumerate(arguments, start=1)])


def _field_name(node: exp.Expr, position: int) -> str:
    if isinstance(node, exp.Alias | exp.Column):
        return str(node.alias_or_name)
    return node.expression.name if isinstance(node, exp.Dot) else f"col{position}"


def _named_struct_type(arguments: Arguments) -> DataType | None:
    names = [_string_literal(a.node) for a in arguments[::2]]
    if len(arguments) % 2 or None in names:
        return None
    return struct_type([(str(n), a.type) for n, a in zip(names, arguments[1::2], strict=True)])


def _map_type(arguments: Arguments) -> DataType | None:
    if len(arguments) % 2 or not arguments:
        return None
    return map_type(common_type([a.type for a in arguments[::2]]), common_type([a.type for a in arguments[1::2]]))


def _map_entries_type(type_: DataType | None) -> DataType | None:
    return array_type(struct_type([("key", key_type(type_)), ("value", element_type(type_))]))


def _map_from_entries_type(type_: DataType | None) -> DataType | None:
    inner = element_type(type_)
    if inner is None or inner.name != "struct" or len(inner.fields) != 2:
        return None
    return map_type(inner.fields[0].type, inner.fields[1].type)


def _sequence_type(arguments: Arguments) -> DataType | None:
    return array_type(common_type([a.type for a in arguments[:2]])) if len(arguments) in (2, 3) else None


def _decode_type(arguments: Arguments) -> DataType | None:
    """String for two arguments (bytes and charset). Otherwise the common type of the results, which are every second
    argument, and the default at the end.
    """
    if len(arguments) == 2:
        return DataType("string")
    results = [*arguments[2::2], *(arguments[-1:] if len(arguments) % 2 == 0 else ())]
    return common_type([a.type for a in results])


def _arrays_zip_type(arguments: Arguments) -> DataType | None:
    fields = [(_field_name(a.node, n).replace("col", ""), element_type(a.type)) for n, a in enumerate(arguments)]
    return array_type(struct_type(fields))


def _ceiling_type(type_: DataType | None) -> DataType | None:
    return type_ if type_ is None else whole_number_type(type_)


def number_or_double(type_: DataType | None) -> DataType | None:
    """The type itself, or double for a text or null, which Spark casts to a number."""
    if type_ is None or type_.name not in ("string", "void"):
        return type_
    return DataType("double")


def _bit_shift_type(type_: DataType | None) -> DataType | None:
    return None if type_ is None else type_ if type_ == DataType("bigint") else DataType("int")


def _window_type(moment: DataType | None) -> DataType | None:
    if moment is None or moment.name not in ("timestamp", "timestamp_ntz"):
        return None
    return struct_type([("start", moment), ("end", moment)])


def _reverse_type(type_: DataType | None) -> DataType | None:
    return type_ if type_ is None or type_.name in ("array", "binary") else DataType("string")


RULES_BY_FUNCTION: Mapping[str, TypeRule] = {
    **{name: _fixed_type_rule(type_) for type_, names in FUNCTIONS_BY_FIXED_TYPE.items() for name in names.split()},
    **dict.fromkeys("abs negative positive".split(), _rule_from_first_type(number_or_double)),
    **dict.fromkeys(
        "array_compact array_distinct array_except array_sort filter map_filter mode nullif nullifzero shuffle slice "
        "sort_array".split(),
        _rule_from_first_type(lambda type_: type_),
    ),
    **dict.fromkeys("coalesce ifnull nvl array_union array_intersect map_concat".split(), _common_type_rule()),
    **dict.fromkeys("if nvl2".split(), _common_type_rule(1)),
    **dict.fromkeys("left lpad rpad substring".split(), _rule_from_first_type(_text_or_binary_type)),
    **dict.fromkeys("element_at get try_element_at array_max array_min".split(), _rule_from_first_type(element_type)),
    "ceiling": _rule_from_types(1, _ceiling_type),
    **dict.fromkeys("round bround".split(), _round_type),
    **dict.fromkeys("dateadd date_add timestampadd".split(), _dateadd_type),
    **dict.fromkeys("datediff date_diff".split(), _datediff_type),
    **dict.fromkeys("from_json from_csv from_xml".split(), _type_from_schema_literal),
    **dict.fromkeys("mod pmod try_mod".split(), _arithmetic_rule("%")),
    **dict.fromkeys("shiftleft shiftright shiftrightunsigned".split(), _rule_from_first_type(_bit_shift_type)),
    **dict.fromkeys(
        "to_timestamp try_to_timestamp make_timestamp try_make_timestamp".split(),
        _rule_from_first_type(lambda type_: DataType("timestamp")),
    ),
    "try_sum": _rule_from_first_type(_sum_type),
    **dict.fromkeys("mean try_avg".split(), _rule_from_first_type(_average_type)),
    "array": lambda arguments: array_type(common_type([a.type for a in arguments]) if arguments else VOID),
    **dict.fromkeys("greatest least".split(), _greatest_or_least_type),
    **dict.fromkeys("array_append array_prepend array_remove".split(), _widened_array_type_rule(1)),
    "array_insert": _widened_array_type_rule(2),
    "array_repeat": _rule_from_first_type(array_type),
    "arrays_zip": _arrays_zip_type,
    "concat": _concat_type,
    "decimal": _fixed_type_rule("decimal(10,0)"),
    "decode": _decode_type,
    "div": _fixed_type_rule("bigint"),
    "elt": _fixed_type_rule("string"),
    "flatten": _rule_from_types(1, element_type),
    "map": _map_type,
    "map_entries": _rule_from_first_type(_map_entries_type),
    "map_from_arrays": _rule_from_types(2, lambda keys, values: map_type(element_type(keys), element_type(values))),
    "map_from_entries": _rule_from_types(1, _map_from_entries_type),
    "map_keys": _rule_from_first_type(lambda type_: array_type(key_type(type_))),
    "map_values": _rule_from_first_type(
        lambda type_: array_type(element_type(type_)) if key_type(type_) is not None else None
    ),
    "median": _fixed_type_rule("double"),
    "named_struct": _named_struct_type,
    "reverse": _rule_from_types(1, _reverse_type),
    "nanvl": _rule_from_types(2, lambda a, b: DataType("double")),
    "sequence": _sequence_type,
    "struct": _struct_type,
    "try_add": _arithmetic_rule("+"),
    "try_divide": _arithmetic_rule("/"),
    "try_multiply": _arithmetic_rule("*"),
    "try_subtract": _arithmetic_rule("-"),
    **dict.fromkeys(("window", "session_window"), _rule_from_first_type(_window_type)),
    "zeroifnull": _rule_from_types(1, lambda type_: common_type([type_, DataType("int")])),
}
"""The functions that the parser keeps as calls. ``node_types`` has the functions with nodes of their own."""


def type_of_call(name: str, arguments: Arguments) -> DataType | None:
    """Return type of a Spark function. None if no rule applies."""
    rule = RULES_BY_FUNCTION.get(name.lower())
    return None if rule is None else rule(arguments)
