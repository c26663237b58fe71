"""Wider types, which represent every value of a type: a column may widen, and old rows are read in its new type."""

from __future__ import annotations

from nova_assets.model.schema import UNKNOWN_TYPE, DataType, Field

_WIDER_TYPE_NAMES = {
    "tinyint": {"smallint", "int", "bigint"},
    "smallint": {"int", "bigint"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": {"timestamp_ntz"},
}


def can_widen(from_type: DataType, to_type: DataType) -> bool:
    """Whether ``to_type`` can represent every value of ``from_type`` exactly.

    A wider struct has the fields of the narrower struct by their names, in any order. It may have further fields. These
    are null in the values of the narrower struct.
    """
    if from_type == UNKNOWN_TYPE or str(from_type) == str(to_type):
        return True
    if from_type.name == to_type.name == "decimal":
        return (
            to_type.args[1] >= from_type.args[1]
            and to_type.args[0] - to_type.args[1] >= from_type.args[0] - from_type.args[1]
        )
    if from_type.name != to_type.name:
        return to_type.name in _WIDER_TYPE_NAMES.get(from_type.name, set())
    if from_type.name == "struct":
        return has_fields_of(from_type, to_type) and all(
            can_widen(f.type, _field_of(to_type, f.name).type) for f in from_type.fields
        )
    return bool(from_type.fields) and all(
        can_widen(a.type, b.type) for a, b in zip(from_type.fields, to_type.fields, strict=True)
    )


def has_fields_of(from_struct: DataType, to_struct: DataType) -> bool:
    """Whether a struct has the fields of another, and its names differ in more than case."""
    names, to_names = ({f.name for f in struct.fields} for struct in (from_struct, to_struct))
    return names <= to_names and len({n.lower() for n in to_names}) == len(to_struct.fields)


def has_other_fields(from_type: DataType, to_type: DataType) -> bool:
    """Whether a wider type has structs with more fields or with another order, at any depth. Spark's cast goes by
    position, so it does not fit these.
    """
    if from_type.name != to_type.name:
        return False
    if from_type.name == "struct":
        return [f.name for f in from_type.fields] != [f.name for f in to_type.fields] or any(
            has_other_fields(f.type, _field_of(to_type, f.name).type) for f in from_type.fields
        )
    return any(has_other_fields(a.type, b.type) for a, b in zip(from_type.fields, to_type.fields, strict=True))


def common_type(first: DataType, second: DataType) -> DataType | None:
    """Narrowest type to which two types can widen; None if there is none.

    Structs get the fields of both: those of the first, then those that only the second has.
    """
    if can_widen(second, first):
        return first
    if can_widen(first, second):
        return second
    if first.name != second.name or not first.fields:
        return None
    fields = []
    for name, a, b in _paired_parts(first, second):
        type_ = common_type(a, b)
        if type_ is None:
            return None
        fields.append(Field(name, type_))
    found = DataType(first.name, (), tuple(fields))
    return found if can_widen(first, found) and can_widen(second, found) else None


def _paired_parts(first: DataType, second: DataType) -> list[tuple[str, DataType, DataType]]:
    """Name and types of each nested part of two types of one kind. A field that one struct lacks has one type."""
    if first.name != "struct":
        return [(a.name, a.type, b.type) for a, b in zip(first.fields, second.fields, strict=True)]
    types, second_types = ({f.name: f.type for f in struct.fields} for struct in (first, second))
    names = (*types, *(n for n in second_types if n not in types))
    return [(n, types.get(n) or second_types[n], second_types.get(n) or types[n]) for n in names]


def _field_of(struct: DataType, name: str) -> Field:
    return next(f for f in struct.fields if f.name == name)
