"""How the schema of a channel changes (R18): by the data that comes, and by declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nova_assets.errors import DefinitionError, SchemaMismatch
from nova_assets.model.schema import UNKNOWN_TYPE, Field, Schema, can_widen, quote_identifier
from nova_assets.suggestions import did_you_mean


def reconcile_schema(
    channel: str, declared: Schema | None, data_schema: Schema, on_schema_change: str, head: int = 0
) -> Schema:
    """The schema of the channel once data of the schema ``data_schema`` is on it.

    Under ``freeze`` the given columns must be exactly the declared ones (in any order; a narrower type is widened).
    Under ``evolve`` new nullable columns may come, absent ones are filled with nulls, and types may widen. A new column
    of nothing but nulls waits for its first value, which tells its type.

    Args:
        head: of the channel, before.

    Raises:
        SchemaMismatch: with every column that is wrong.
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
        elif on_schema_change == "evolve" and can_widen(f.type, data_type):
            fields.append(replace(f, type=data_type))
        else:
            problems.append(f"column {quote_identifier(f.name)} is {data_type}, not {f.type}")
    if on_schema_change == "evolve":
        problems += [
            f"column {quote_identifier(f.name)} is missing and may not be null" for f in missing if not f.nullable
        ]
        name_by_lower = {f.name.lower(): f.name for f in declared.fields}
        case_conflicts = [(f.name, name_by_lower[f.name.lower()]) for f in extra if f.name.lower() in name_by_lower]
        problems += [
            f"column {quote_identifier(new)} differs from column {quote_identifier(old)} in case only"
            for new, old in case_conflicts
        ]
        fields += [_new_field(f, head) for f in extra if f.type != UNKNOWN_TYPE]
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
            f"channel {channel!r} was given data of another schema: {'; '.join(problems)}",
            found=str(data_schema),
            expected=str(declared),
            next=next_step,
            channel=channel,
            problems=problems,
        )
    return Schema(tuple(fields))


def _schema_of_first_data(channel: str, data_schema: Schema, on_schema_change: str) -> Schema:
    """The schema of a channel whose first data gives it."""
    all_null_columns = [f.name for f in data_schema.fields if f.type == UNKNOWN_TYPE]
    if not all_null_columns:
        return data_schema
    if on_schema_change == "evolve" and len(all_null_columns) < len(data_schema.fields):
        return data_schema.without_columns(*all_null_columns)
    names = ", ".join(map(quote_identifier, all_null_columns))
    raise SchemaMismatch(
        f"the first data of channel {channel!r} has nothing but nulls in {names}: that tells no type",
        found=str(data_schema),
        expected="a value in each column, or a channel that is declared with its types",
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
    old_name_by_new: Mapping[str, str],
    head: int,
    merge_model_columns: Collection[str] = (),
) -> Schema:
    """The schema of a channel that has data, under a new declaration.

    Columns keep what they hold, by name or as ``old_name_by_new`` says; types may widen; a new column is null in what
    is there; a column that the declaration before had and this one has not is dropped. Columns that only came with
    data stay. Blocks are not touched: ``at=`` an older number still has its own columns.

    Args:
        current: the channel's schema, evolved as it may be.
        previous_declaration: the declaration before; None if it left the schema out.
        old_name_by_new: new name -> old name.
        merge_model_columns: columns that the merge model of the newest block names. It is read by that model (R18), so
            these columns keep their names until a base brings another model.

    Raises:
        DefinitionError: with every column that cannot become what is declared.
    """
    problems, fields, used = [], [], set()
    for f in declared.fields:
        old_name = old_name_by_new.get(f.name, f.name) if f.name not in current else f.name
        if old_name not in current:
            if not f.nullable:
                problems.append(
                    f"new column {quote_identifier(f.name)} may not be null, but is in the {head} "
                    "versions that are there"
                )
            fields.append(_new_field(f, head))
            continue
        old = current.field(old_name)
        used.add(old_name)
        if not can_widen(old.type, f.type):
            problems.append(f"column {quote_identifier(f.name)} is {old.type} and cannot become {f.type}")
        if old.nullable and not f.nullable:
            problems.append(
                f"column {quote_identifier(f.name)} may be null in what is there, and cannot become NOT NULL"
            )
        fields.append(replace(f, id=old.id or ("" if old.name == f.name else old.name)))
    kept_fields = [
        f
        for f in current.fields
        if f.name not in used and (previous_declaration is None or f.name not in previous_declaration)
    ]
    identity_by_name = {f.name: f.identity for f in (*fields, *kept_fields)}
    problems += [
        f"column {quote_identifier(f.name)} is named by the merge model of what is "
        "there, and cannot be renamed or dropped "
        "before a base of the whole channel brings another model"
        for f in current.fields
        if f.name in merge_model_columns and identity_by_name.get(f.name) != f.identity
    ]
    if problems:
        raise DefinitionError.of(problems, f"channel {channel!r}")
    return Schema((*fields, *kept_fields))


def _new_field(field: Field, head: int) -> Field:
    """A column that comes to a channel with data: another than any that had its name before."""
    return replace(field, nullable=True, id=f"{field.name}@{head + 1}" if head else "")
