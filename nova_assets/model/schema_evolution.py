"""How the schema of a channel changes (R18): by the data that comes, and by declaration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from nova_assets.errors import DefinitionError, SchemaMismatch
from nova_assets.model.schema import UNKNOWN, Field, Schema, quoted, widens
from nova_assets.suggestions import did_you_mean


def reconcile(channel: str, declared: Schema | None, given: Schema, on_change: str, head: int = 0) -> Schema:
    """The schema of the channel once data of the schema ``given`` is on it.

    Under ``freeze`` the given columns must be exactly the declared ones (in any order; a narrower type is widened).
    Under ``evolve`` new nullable columns may come, absent ones are filled with nulls, and types may widen. A new column
    of nothing but nulls waits for its first value, which tells its type.

    Args:
        head: of the channel, before.

    Raises:
        SchemaMismatch: with every column that is wrong.
    """
    if declared is None:
        return _first(channel, given, on_change)
    missing = [f for f in declared.fields if f.name not in given]
    extra = [f for f in given.fields if f.name not in declared]
    absent = [f.name for f in missing]
    problems = []
    fields = []
    for f in declared.fields:
        came = given.field(f.name).type if f.name in given else f.type
        if widens(came, f.type):
            fields.append(f)
        elif on_change == "evolve" and widens(f.type, came):
            fields.append(replace(f, type=came))
        else:
            problems.append(f"column {quoted(f.name)} is {came}, not {f.type}")
    if on_change == "evolve":
        problems += [f"column {quoted(f.name)} is missing and may not be null" for f in missing if not f.nullable]
        lower = {f.name.lower(): f.name for f in declared.fields}
        twins = [(f.name, lower[f.name.lower()]) for f in extra if f.name.lower() in lower]
        problems += [f"column {quoted(new)} differs from column {quoted(old)} in case only" for new, old in twins]
        fields += [_new(f, head) for f in extra if f.type != UNKNOWN]
    else:
        problems += [f"column {quoted(f.name)} {f.type} is missing" for f in missing]
        problems += [
            f"column {quoted(f.name)} {f.type} is not on the channel{did_you_mean(f.name, absent)}" for f in extra
        ]
    if problems:
        way = (
            "cast or rename the columns"
            if on_change == "evolve"
            else 'cast or rename the columns, or declare the channel with on_schema_change="evolve"'
        )
        raise SchemaMismatch(
            f"channel {channel!r} was given data of another schema: {'; '.join(problems)}",
            found=str(given),
            expected=str(declared),
            next=way,
            channel=channel,
            problems=problems,
        )
    return Schema(tuple(fields))


def _first(channel: str, given: Schema, on_change: str) -> Schema:
    """The schema of a channel whose first data gives it."""
    unknown = [f.name for f in given.fields if f.type == UNKNOWN]
    if not unknown:
        return given
    if on_change == "evolve" and len(unknown) < len(given.fields):
        return given.without(*unknown)
    names = ", ".join(map(quoted, unknown))
    raise SchemaMismatch(
        f"the first data of channel {channel!r} has nothing but nulls in {names}: that tells no type",
        found=str(given),
        expected="a value in each column, or a channel that is declared with its types",
        next=f'declare the channel with schema="..., {quoted(unknown[0])} TYPE", or leave the column out',
        channel=channel,
        columns=unknown,
    )


def redeclare(
    channel: str,
    now: Schema,
    before: Schema | None,
    declared: Schema,
    renamed: Mapping[str, str],
    head: int,
    merged_by: Collection[str] = (),
) -> Schema:
    """The schema of a channel that has data, under a new declaration.

    Columns keep what they hold, by name or as ``renamed`` says; types may widen; a new column is null in what is there;
    a column that the declaration before had and this one has not is dropped. Columns that only came with data stay.
    Blocks are not touched: ``at=`` an older number still has its own columns.

    Args:
        now: the channel's schema, evolved as it may be.
        before: the declaration before; None if it left the schema out.
        renamed: new name -> old name.
        merged_by: columns that the merge model of the newest block names. It is read by that model (R18), so these
            columns keep their names until a base brings another model.

    Raises:
        DefinitionError: with every column that cannot become what is declared.
    """
    problems, fields, used = [], [], set()
    for f in declared.fields:
        old_name = renamed.get(f.name, f.name) if f.name not in now else f.name
        if old_name not in now:
            if not f.nullable:
                problems.append(
                    f"new column {quoted(f.name)} may not be null, but is in the {head} versions that are there"
                )
            fields.append(_new(f, head))
            continue
        old = now.field(old_name)
        used.add(old_name)
        if not widens(old.type, f.type):
            problems.append(f"column {quoted(f.name)} is {old.type} and cannot become {f.type}")
        if old.nullable and not f.nullable:
            problems.append(f"column {quoted(f.name)} may be null in what is there, and cannot become NOT NULL")
        fields.append(replace(f, id=old.id or ("" if old.name == f.name else old.name)))
    kept = [f for f in now.fields if f.name not in used and (before is None or f.name not in before)]
    after = {f.name: f.identity for f in (*fields, *kept)}
    problems += [
        f"column {quoted(f.name)} is named by the merge model of what is there, and cannot be renamed or dropped "
        "before a base of the whole channel brings another model"
        for f in now.fields
        if f.name in merged_by and after.get(f.name) != f.identity
    ]
    if problems:
        raise DefinitionError.of(problems, f"channel {channel!r}")
    return Schema((*fields, *kept))


def _new(field: Field, head: int) -> Field:
    """A column that comes to a channel with data: another than any that had its name before."""
    return replace(field, nullable=True, id=f"{field.name}@{head + 1}" if head else "")
