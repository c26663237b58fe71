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
from nova_assets.sql.types.nested_types import array_type, element_type, key_type, map_type, struct_type
from nova_assets.sql.types.widening import VOID, arithmetic_type, decimal_up_to_max, is_integral, is_number, wider_type


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


def _type_of_argument(position: int) -> TypeRule:
    """The rule that returns the type of one argument."""
    return lambda arguments: arguments[position].type if len(arguments) > position else None


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


def _text_or_binary_type(arguments: Arguments) -> DataType | None:
    """Binary if the first argument is binary, otherwise string."""
    type_ = arguments[0].type if arguments else None
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
        (a, b) = (x.type for x in arguments)
        if a is None or b is None:
            return None
        left, right = (
            literal_type_beside_decimal(arguments[0].node, a, b),
            literal_type_beside_decimal(arguments[1].node, b, a),
        )
        return arithmetic_type(symbol, left, right)

    return rule


def literal_type_beside_decimal(node: exp.Expr, type_: DataType, other_type: DataType) -> DataType:
    """Type of an operand beside another. An integer literal beside a decimal has as many digits as it needs."""
    plain = node.unnest()
    plain = plain.this if isinstance(plain, exp.Neg) else plain
    if other_type.name == "decimal" and is_integral(type_) and isinstance(plain, exp.Literal):
        return DataType("decimal", (len(plain.name.lstrip("0")) or 1, 0))
    return type_


def rounded_type(type_: DataType | None, digits: exp.Expr | None) -> DataType | None:
    """Type of a number rounded to some digits."""
    if type_ is None or type_.name != "decimal":
        return type_ if type_ is None or is_number(type_) else DataType("double")
    wanted = 0 if digits is None else integer_literal_value(digits)
    if wanted is None:
        return None
    precision, scale = type_.args
    kept = min(max(wanted, 0), scale)
    return decimal_up_to_max(max(precision - scale + 1, 1 - wanted) + kept, kept)


def integer_literal_value(node: exp.Expr) -> int | None:
    """The value of an integer literal. None for other nodes."""
    if isinstance(node, exp.Neg):
        inner = integer_literal_value(node.this)
        return None if inner is None else -inner
    return int(node.name) if isinstance(node, exp.Literal) and node.is_int else None


def sum_type(type_: DataType | None) -> DataType | None:
    """Type of a sum. None for booleans, which Spark does not add."""
    if type_ is None or type_.name == "boolean":
        return None
    if is_integral(type_):
        return DataType("bigint")
    if type_.name == "decimal":
        return decimal_up_to_max(type_.args[0] + 10, type_.args[1])
    return DataType("double") if is_number(type_) or type_.name in ("string", "void") else None


def average_type(type_: DataType | None) -> DataType | None:
    if type_ is None:
        return None
    if type_.name == "decimal":
        return decimal_up_to_max(type_.args[0] + 4, type_.args[1] + 4)
    return DataType("double") if is_number(type_) or type_.name in ("string", "void") else None


def _round_type(arguments: Arguments) -> DataType | None:
    return rounded_type(arguments[0].type, arguments[1].node if len(arguments) > 1 else None) if arguments else None


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


def _map_from_entries_type(arguments: Arguments) -> DataType | None:
    inner = element_type(arguments[0].type) if len(arguments) == 1 else None
    if inner is None or inner.name != "struct" or len(inner.fields) != 2:
        return None
    return map_type(inner.fields[0].type, inner.fields[1].type)


def _flatten_type(arguments: Arguments) -> DataType | None:
    return element_type(arguments[0].type) if len(arguments) == 1 else None


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


def _rule_from_first_argument(transform_type: Callable[[DataType | None], DataType | None]) -> TypeRule:
    return lambda arguments: transform_type(arguments[0].type) if arguments else None


def _arrays_zip_type(arguments: Arguments) -> DataType | None:
    fields = [(_field_name(a.node, n).replace("col", ""), element_type(a.type)) for n, a in enumerate(arguments)]
    return array_type(struct_type(fields))


def _decimal_function_type(arguments: Arguments) -> DataType | None:
    return DataType("decimal", (10, 0))


def _ceiling_type(arguments: Arguments) -> DataType | None:
    type_ = arguments[0].type if len(arguments) == 1 else None
    if type_ is None:
        return None
    return decimal_up_to_max(type_.args[0] - type_.args[1] + 1, 0) if type_.name == "decimal" else DataType("bigint")


def number_or_double(type_: DataType | None) -> DataType | None:
    """The type itself, or double for a text or null, which Spark casts to a number."""
    if type_ is None or type_.name not in ("string", "void"):
        return type_
    return DataType("double")


def _bit_shift_type(arguments: Arguments) -> DataType | None:
    type_ = arguments[0].type if arguments else None
    return None if type_ is None else type_ if type_ == DataType("bigint") else DataType("int")


def _window_type(arguments: Arguments) -> DataType | None:
    moment = arguments[0].type if arguments else None
    if moment is None or moment.name not in ("timestamp", "timestamp_ntz"):
        return None
    return struct_type([("start", moment), ("end", moment)])


def _reverse_type(arguments: Arguments) -> DataType | None:
    type_ = arguments[0].type if len(arguments) == 1 else None
    return type_ if type_ is None or type_.name in ("array", "binary") else DataType("string")


def _timestamp_if_any_argument(arguments: Arguments) -> DataType | None:
    return DataType("timestamp") if arguments else None


RULES_BY_FUNCTION: Mapping[str, TypeRule] = {
    **{name: _fixed_type_rule(type_) for type_, names in FUNCTIONS_BY_FIXED_TYPE.items() for name in names.split()},
    **dict.fromkeys("abs negative positive".split(), _rule_from_first_argument(number_or_double)),
    **dict.fromkeys(
        "array_compact array_distinct array_except array_sort filter map_filter mode nullif nullifzero shuffle slice "
        "sort_array".split(),
        _type_of_argument(0),
    ),
    **dict.fromkeys("coalesce ifnull nvl array_union array_intersect map_concat".split(), _common_type_rule()),
    **dict.fromkeys("if nvl2".split(), _common_type_rule(1)),
    **dict.fromkeys("left lpad rpad substring".split(), _text_or_binary_type),
    **dict.fromkeys(
        "element_at get try_element_at array_max array_min".split(), _rule_from_first_argument(element_type)
    ),
    "ceiling": _ceiling_type,
    **dict.fromkeys("round bround".split(), _round_type),
    **dict.fromkeys("dateadd date_add timestampadd".split(), _dateadd_type),
    **dict.fromkeys("datediff date_diff".split(), _datediff_type),
    **dict.fromkeys("from_json from_csv from_xml".split(), _type_from_schema_literal),
    **dict.fromkeys("mod pmod try_mod".split(), _arithmetic_rule("%")),
    **dict.fromkeys("shiftleft shiftright shiftrightunsigned".split(), _bit_shift_type),
    **dict.fromkeys(
        "to_timestamp try_to_timestamp make_timestamp try_make_timestamp".split(), _timestamp_if_any_argument
    ),
    "try_sum": _rule_from_first_argument(sum_type),
    **dict.fromkeys("mean try_avg".split(), _rule_from_first_argument(average_type)),
    "array": lambda arguments: array_type(common_type([a.type for a in arguments]) if arguments else VOID),
    **dict.fromkeys("greatest least".split(), _greatest_or_least_type),
    **dict.fromkeys("array_append array_prepend array_remove".split(), _widened_array_type_rule(1)),
    "array_insert": _widened_array_type_rule(2),
    "array_repeat": _rule_from_first_argument(array_type),
    "arrays_zip": _arrays_zip_type,
    "concat": _concat_type,
    "decimal": _decimal_function_type,
    "decode": _decode_type,
    "div": _fixed_type_rule("bigint"),
    "elt": _fixed_type_rule("string"),
    "flatten": _flatten_type,
    "map": _map_type,
    "map_entries": _rule_from_first_argument(_map_entries_type),
    "map_from_arrays": lambda a: map_type(element_type(a[0].type), element_type(a[1].type)) if len(a) == 2 else None,
    "map_from_entries": _map_from_entries_type,
    "map_keys": _rule_from_first_argument(lambda type_: array_type(key_type(type_))),
    "map_values": _rule_from_first_argument(
        lambda type_: array_type(element_type(type_)) if key_type(type_) is not None else None
    ),
    "median": _fixed_type_rule("double"),
    "named_struct": _named_struct_type,
    "reverse": _reverse_type,
    "nanvl": lambda arguments: DataType("double") if len(arguments) == 2 else None,
    "sequence": _sequence_type,
    "struct": _struct_type,
    "try_add": _arithmetic_rule("+"),
    "try_divide": _arithmetic_rule("/"),
    "try_multiply": _arithmetic_rule("*"),
    "try_subtract": _arithmetic_rule("-"),
    "window": _window_type,
    "session_window": _window_type,
    "zeroifnull": lambda arguments: common_type([arguments[0].type, DataType("int")]) if len(arguments) == 1 else None,
}
"""The functions that the parser keeps as calls. ``node_types`` has the functions with nodes of their own."""


def type_of_call(name: str, arguments: Arguments) -> DataType | None:
    """Return type of a Spark function. None if no rule applies."""
    rule = RULES_BY_FUNCTION.get(name.lower())
    return None if rule is None else rule(arguments)
