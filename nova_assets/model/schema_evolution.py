"""Schema evolution of a channel (R18), by new data and by a new declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nova_assets.errors import DefinitionError, SchemaMismatch
from nova_assets.model.schema import UNKNOWN_TYPE, DataType, Field, Schema, quote_identifier
from nova_assets.suggestions import did_you_mean

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


NO_RENAMES: Mapping[str, str] = {}


def reconcile_schema(
    channel: str, declared: Schema | None, data_schema: Schema, on_schema_change: str, head: int = 0
) -> Schema:
    """Schema of the channel after data with the schema ``data_schema`` is added.

    Under ``freeze`` the data must have exactly the declared columns, in any order. Narrower types are widened. Under
    ``evolve`` the data may add nullable columns, missing columns are filled with nulls, and types may widen. A struct
    widens by further fields. A new column that contains only nulls is not added before its first value, which
    determines its type.

    Args:
        channel: name of the channel.
        declared: current schema; None if the first data determines it.
        data_schema: schema of the data.
        on_schema_change: ``freeze`` or ``evolve``.
        head: head of the channel before the data.

    Raises:
        SchemaMismatch: with every column that does not fit.
    """
    if declared is None:
        return _schema_of_first_data(channel, data_schema, on_schema_change)
    missing = [f for f in declared.fields if f.name not in data_schema]
    extra = [f for f in data_schema.fields if f.name not in declared]
    absent = [f.name for f in missing]
    problems = []
    fields = []
    for f in declared.fields:
        data_type = data_schema.field(f.name).type if f.name in data_schema else f.type
        if can_widen(data_type, f.type):
            fields.append(f)
        elif on_schema_change == "evolve" and (wider_type := common_type(f.type, data_type)) is not None:
            fields.append(replace(f, type=wider_type))
        else:
            problems.append(f"column {quote_identifier(f.name)} is {data_type}, not {f.type}")
    if on_schema_change == "evolve":
        problems += [
            f"column {quote_identifier(f.name)} is missing, but must not be null" for f in missing if not f.nullable
        ]
        name_by_lower = {f.name.lower(): f.name for f in declared.fields}
        case_conflicts = [(f.name, name_by_lower[f.name.lower()]) for f in extra if f.name.lower() in name_by_lower]
        problems += [
            f"column {quote_identifier(new)} differs from column {quote_identifier(old)} in case only"
            for new, old in case_conflicts
        ]
        taken = {f.identity for f in declared.fields}
        fields += [_new_field(f, head, taken) for f in extra if f.type != UNKNOWN_TYPE]
    else:
        problems += [f"column {quote_identifier(f.name)} {f.type} is missing" for f in missing]
        problems += [
            f"column {quote_identifier(f.name)} {f.type} is not on the channel{did_you_mean(f.name, absent)}"
            for f in extra
        ]
    if problems:
        next_step = (
            "cast or rename the columns"
            if on_schema_change == "evolve"
            else 'cast or rename the columns, or declare the channel with on_schema_change="evolve"'
        )
        raise SchemaMismatch(
            f"channel {channel!r} got data with another schema: {'; '.join(problems)}",
            found=str(data_schema),
            expected=str(declared),
            next=next_step,
            channel=channel,
            problems=problems,
        )
    return Schema(tuple(fields))


def _schema_of_first_data(channel: str, data_schema: Schema, on_schema_change: str) -> Schema:
    """Schema of a channel that its first data determines."""
    all_null_columns = [f.name for f in data_schema.fields if f.type == UNKNOWN_TYPE]
    if not all_null_columns:
        return data_schema
    # A null says the same as a missing column, so nothing is lost if the column comes with its first value. As text, it
    # would refuse a later 2.5. Without ``evolve``, the first data decides for good, so such a column could never come.
    if on_schema_change == "evolve" and len(all_null_columns) < len(data_schema.fields):
        return data_schema.without_columns(*all_null_columns)
    names = ", ".join(map(quote_identifier, all_null_columns))
    raise SchemaMismatch(
        f"the first data of channel {channel!r} has only nulls in {names}, so their types are unknown",
        found=str(data_schema),
        expected="a value in each column, or a channel with a declared schema",
        next=f'declare the channel with schema="..., {quote_identifier(all_null_columns[0])} '
        'TYPE", or leave the column out',
        channel=channel,
        columns=all_null_columns,
    )


def redeclare_schema(
    channel: str,
    current: Schema,
    previous_declaration: Schema | None,
    declared: Schema,
    renamed: Mapping[str, str],
    head: int,
    merge_model_columns: Collection[str] = (),
    registered_renames: Mapping[str, str] = NO_RENAMES,
    next_step: str = "",
) -> Schema:
    """Schema of a channel with data, under a new declaration.

    All renames are made at once, so columns may exchange their names. Each other column keeps the data of its name,
    unless a rename takes them: then it is new. Types may widen. A new column is null in existing rows. A column is
    dropped if the previous declaration has it and neither the new one nor a rename does. Columns that were added by
    data alone stay. Blocks stay unchanged: ``at=`` an older number still has its own columns.

    Args:
        channel: name of the channel.
        current: current schema of the channel, including evolved columns.
        previous_declaration: schema of the previous declaration; None if it had none.
        declared: schema of the new declaration.
        renamed: new name -> old name. The same renames as in the registered definition are not made again.
        head: head of the channel.
        merge_model_columns: columns by which the newest block is merged. The block is read by that model
            (R18), so these columns keep their names until a base brings another model.
        registered_renames: renames of the registered definition.
        next_step: next step of the error; by default, to declare the columns elsewhere.

    Raises:
        DefinitionError: with every column that cannot be converted to its declaration.
    """
    problems, renames = _renames_to_make(current, renamed, registered_renames)
    renamed_columns, taken = set(renames.values()), {f.identity for f in current.fields}
    fields, used = [], set()
    for f in declared.fields:
        old_name = renames.get(f.name, f.name)
        if old_name not in current or (f.name not in renames and f.name in renamed_columns):
            if not f.nullable:
                problems.append(
                    f"new column {quote_identifier(f.name)} may not be null, but is null in the "
                    f"{head} existing versions"
                )
            fields.append(_new_field(f, head, taken))
            continue
        old = current.field(old_name)
        used.add(old_name)
        if not can_widen(old.type, f.type):
            problems.append(f"column {quote_identifier(f.name)} is {old.type} and cannot become {f.type}")
        if old.nullable and not f.nullable:
            problems.append(
                f"column {quote_identifier(f.name)} may be null in existing rows and cannot become NOT NULL"
            )
        fields.append(replace(f, id=old.id or ("" if old.name == f.name else old.name)))
    kept_fields = [
        f
        for f in current.fields
        if f.name not in used and (previous_declaration is None or f.name not in previous_declaration)
    ]
    problems += [
        f"column {quote_identifier(f.name)} came with the data, so no other column can be renamed to it"
        for f in kept_fields
        if f.name in renames
    ]
    identity_by_name = {f.name: f.identity for f in (*fields, *kept_fields)}
    problems += [
        f"column {quote_identifier(f.name)} takes part in the merge model of the "
        "existing data, and cannot be renamed or dropped "
        "before a base of the whole channel brings another model"
        for f in current.fields
        if f.name in merge_model_columns and identity_by_name.get(f.name) != f.identity
    ]
    if problems:
        raise DefinitionError.of(
            problems,
            f"channel {channel!r}",
            next=next_step
            or "keep these columns, or declare the new ones in a channel or dataset with another name; then: "
            f"nova remove channel {channel}",
        )
    return Schema((*fields, *kept_fields))


def _renames_to_make(
    current: Schema, renamed: Mapping[str, str], registered: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Problems of renames, and the renames that the schema does not show yet.

    A definition may keep its renames after they are made. If other renames join them, and a column has an old name
    again, nobody knows whether to make the old rename again.
    """
    if renamed == registered:
        return [], {}
    columns = ", ".join(map(quote_identifier, current.names))
    problems, renames = [], {}
    for new, old in renamed.items():
        if old in current and registered.get(new) == old != new:
            problems.append(
                f"renamed maps {old!r} to {new!r}, as the registered definition does, and there is a column {old!r} "
                "again; register the definition without renamed=, then with the renames to make now"
            )
        elif old in current:
            renames[new] = old
        elif new not in current or current.field(new).first_name != old:
            problems.append(
                f"renamed maps {old!r} to {new!r}, but the channel has no column {old!r} (columns: {columns})"
                f"{did_you_mean(old, current.names)}"
            )
    return problems, renames


def schema_after_delta(current: Schema | None, data_schema: Schema, head: int) -> Schema:
    """Schema of a channel after a delta with these columns, if the channel accepts the delta.

    Args:
        current: schema of the channel before the delta; None if the delta gives it its first schema.
        head: head of the channel before the delta.
    """
    fields = () if current is None else current.fields
    names, taken = {f.name for f in fields}, {f.identity for f in fields}
    added = [f for f in data_schema.fields if f.name not in names and f.type != UNKNOWN_TYPE]
    return Schema((*fields, *(_new_field(f, head, taken) for f in added)))


def _new_field(field: Field, head: int, taken: set[str]) -> Field:
    """Field of a column that is added to a channel with data. Its identity differs from earlier columns of the
    same name.

    Args:
        taken: identities of the channel's columns. The new one is added.
    """
    identity = f"{field.name}@{head + 1}" if head else field.name
    while identity in taken:
        identity += "'"
    taken.add(identity)
    return replace(field, nullable=True, id="" if identity == field.name else identity)
