"""Changes from elsewhere in the order of their own clock: the current rows of a table, or the history of its rows, from
records of its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from nova_assets.errors import DefinitionError
from nova_assets.model.binding import Binding, bind
from nova_assets.model.channel import Channel
from nova_assets.model.edge import Produces
from nova_assets.model.merge import Multiset, Upsert
from nova_assets.model.names import check_name
from nova_assets.model.partition_values import can_be_key
from nova_assets.model.schema import Schema
from nova_assets.model.task import Task
from nova_assets.model.trigger import Trigger
from nova_assets.model.workflowette import Workflowette
from nova_assets.sql.incremental.incremental_task import incremental
from nova_assets.sql.incremental.operators import column_of
from nova_assets.sql.parse.dialect import parse_statement
from nova_assets.sql.text import SqlText
from nova_assets.suggestions import did_you_mean

VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""Columns of a history: sequence values from which on, and before which, a version of a row is valid."""

_RECORD, _SEQUENCE, _IS_DELETED = "newest_record", "record_sequence", "record_is_deleted"


def apply_changes(
    source: Channel,
    *,
    into: str | Channel,
    keys: str | Sequence[str],
    sequence_by: str,
    delete_when: str | None = None,
    except_columns: Sequence[str] = (),
    history: Literal["scd2"] | None = None,
    when: Trigger | None = None,
) -> Binding:
    """A binding that applies records of changes to a channel, in the order of their own clock.

        changes = nova.Channel("changes", schema="id int, name string, op string, ts timestamp")
        customers = nova.apply_changes(
            changes, into="customers", keys="id", sequence_by="ts", delete_when="op = 'D'", except_columns=["op"]
        )
        project = nova.Project([customers], channels=[changes])

    Each record of ``source`` is the new state of one row of a table elsewhere, or its deletion. Records may arrive
    late, twice, or in another order. The result is always the same as if the records had arrived once and in order.

    Without ``history``, the channel has the newest state of each row that is not deleted. A second channel, whose name
    ends with ``_latest``, has the newest record of each key, deletions included. So an execution reads the new records
    and the newest record of their keys, but no older records. (If columns other than those of ``keys`` have arrays,
    structs or binary values, an execution searches older records, too.)

    With ``history="scd2"``, the channel has every version of each row (slowly changing dimension, type 2), with two
    further columns: ``valid_from`` is the version's value of ``sequence_by``, and ``valid_to`` is the value of the next
    record of the same key. ``valid_to`` is null for the current version. An execution searches the older records of the
    keys that have new records.

    If several records of a key have the same value of ``sequence_by``, a deletion counts more than other records, and
    otherwise the record with the greatest values counts. A record without a value of ``sequence_by`` counts as the
    oldest. ``source`` may also have deletions: a record that is removed no longer has an effect.

    A record without a value in a column of ``keys`` is set aside, and so is, with ``history``, a record without a value
    of ``sequence_by``. A further channel, whose name ends with ``_without_key``, has these records. A corrected record
    is a new record of ``source``.

    Args:
        source: channel with the records. Its schema has to be declared.
        into: the channel of the result. If only its name is given, the channel is an ``Upsert`` channel with the
            matching key.
        keys: columns that identify a row.
        sequence_by: column by whose values the records of a row are ordered.
        delete_when: Spark SQL condition over the columns of ``source``, for example ``"op = 'D'"``. A record for which
            the condition is true deletes its row.
        except_columns: columns of ``source`` that the result does not have.
        history: ``"scd2"`` for every version of each row; by default only the newest state.
        when: the trigger. By default, the binding runs by hand only.

    Raises:
        DefinitionError: the schema of ``source`` is not declared, lacks a column, or has a column that cannot be
            compared, or ``history`` is unknown.
        SqlError: ``delete_when`` is not a condition that depends on the record only.
    """
    schema = _schema_of(source)
    key = tuple(_column(schema, name, "keys") for name in ([keys] if isinstance(keys, str) else keys))
    if not key:
        raise DefinitionError("apply_changes has no keys", expected="columns that identify a row")
    omitted = {_column(schema, name, "except_columns") for name in except_columns}
    if lost := [name for name in key if name in omitted]:
        raise DefinitionError(f"key column {lost[0]!r} is in except_columns", expected="a result with all key columns")
    values = [name for name in schema.names if name not in (*key, *omitted)]
    sequence = _column(schema, sequence_by, "sequence_by")
    _check_columns(source, schema, {*key, *values, sequence})
    required = (*key, sequence) if history else key
    records = _Records(source.name, key, required, sequence, tuple(values), _deletion(schema, delete_when))
    added = (VALID_FROM, VALID_TO) if history else ()
    _check_names_are_free(source, (*key, *values), (_RECORD, *added))
    if history == "scd2":
        tasks = _history_tasks(records, into)
    elif history is None:
        tasks = _current_tasks(records, into)
    else:
        raise DefinitionError(
            f"history={history!r} is not a kind of history{did_you_mean(str(history), ('scd2',))}",
            expected='"scd2", or None for the newest state only',
        )
    name = into if isinstance(into, str) else into.name
    tasks.append(_task_without_key(records, name, [f.name for f in schema.fields if can_be_key(f.type)]))
    return bind(Workflowette(name, tasks), channels={source.name: source}, when=when)


@dataclass(frozen=True)
class _Records:
    """Records of changes.

    Args:
        source: name of their channel.
        key: columns that identify a row.
        required: columns without whose values a record is set aside.
        sequence: column by which the records of a row are ordered.
        values: further columns of the result.
        deletion: condition for a record that deletes its row.
    """

    source: str
    key: tuple[str, ...]
    required: tuple[str, ...]
    sequence: str
    values: tuple[str, ...]
    deletion: exp.Expr

    def newest_by(self, *group: str) -> exp.Select:
        """Query of the newest record of each group, as a struct.

        Args:
            group: columns that identify a group.
        """
        is_deleted = exp.Case(ifs=[exp.If(this=self.deletion.copy(), true=exp.true())], default=exp.false())
        fields = {_SEQUENCE: column_of(self.sequence), _IS_DELETED: is_deleted}
        fields |= {name: column_of(name) for name in self.values}
        parts = [part for name, value in fields.items() for part in (exp.Literal.string(name), value)]
        record = exp.Max(this=exp.Anonymous(this="NAMED_STRUCT", expressions=parts))
        columns = [column_of(name) for name in group]
        query = exp.select(*columns, exp.alias_(record, _RECORD)).from_(self.source).where(self.has_key())
        return query.group_by(*(c.copy() for c in columns))

    def has_key(self) -> exp.Expr:
        """Condition for a record to have the values without which it is set aside."""
        return exp.and_(*(column_of(name).is_(exp.null()).not_() for name in dict.fromkeys(self.required)))

    def outputs(self) -> list[exp.Expr]:
        """The columns of the result, from the newest record of each group."""
        values = [exp.alias_(_field(name), name, quoted=True) for name in self.values]
        return [*map(column_of, self.key), *values]


def _field(name: str) -> exp.Expr:
    return exp.Dot(this=column_of(_RECORD), expression=exp.to_identifier(name, quoted=True))


def _is_not_deleted() -> exp.Expr:
    return exp.Not(this=_field(_IS_DELETED))


def _current_tasks(records: _Records, into: str | Channel) -> list[Task]:
    """Tasks that keep the newest record of each key, and the current rows."""
    result = _result_channel(into, records.key)
    latest = Channel(check_name(f"{result.name}_latest", "the channel of the newest records"), Upsert(key=records.key))
    # The result is the only state of a maintained query. So the newest records, deletions included, have a channel of
    # their own: HAVING would forget deleted keys. MAX of a struct is an accumulator, while ROW_NUMBER() = 1 would
    # search all older records of the changed keys.
    newest = records.newest_by(*records.key)
    current = exp.select(*records.outputs()).from_(latest.name).where(_is_not_deleted())
    return [_task(f"keep_{latest.name}", newest, latest), _task(f"keep_{result.name}", current, result)]


def _history_tasks(records: _Records, into: str | Channel) -> list[Task]:
    """The task that keeps every version of each row."""
    result = _result_channel(into, (*records.key, VALID_FROM))
    following = exp.Window(
        this=exp.Anonymous(this="LEAD", expressions=[column_of(records.sequence)]),
        partition_by=[column_of(name) for name in records.key],
        order=exp.Order(expressions=[exp.Ordered(this=column_of(records.sequence), nulls_first=True)]),
    )
    newest = records.newest_by(*dict.fromkeys((*records.key, records.sequence)))
    columns = [*map(column_of, records.key), column_of(_RECORD)]
    period = [exp.alias_(column_of(records.sequence), VALID_FROM), exp.alias_(following, VALID_TO)]
    versions = exp.select(*columns, *period).from_(newest.subquery("records"))
    query = exp.select(*records.outputs(), column_of(VALID_FROM), column_of(VALID_TO)).from_(
        versions.subquery("versions")
    )
    return [_task(f"keep_{result.name}", query.where(_is_not_deleted()), result)]


def _task_without_key(records: _Records, into: str, columns: Iterable[str]) -> Task:
    """The task that keeps the records without a key. They have no effect on the result."""
    reason = f"{' or '.join(dict.fromkeys(records.required))} is null"
    channel = Channel(
        check_name(f"{into}_without_key", "the channel of the records without a key"),
        Multiset(),
        description=f"Records of {records.source} that are not applied to {into}, because {reason}.",
    )
    query = exp.select(*map(column_of, columns)).from_(records.source).where(exp.not_(records.has_key()))
    return _task(f"keep_{channel.name}", query, channel)


def _task(name: str, query: exp.Select, channel: Channel) -> Task:
    return incremental(name, query.sql("spark", pretty=True), produces=Produces(channel.name, "delta", channel))


def _result_channel(into: str | Channel, key: tuple[str, ...]) -> Channel:
    return into if isinstance(into, Channel) else Channel(into, Upsert(key=key))


# checks


def _schema_of(source: Channel) -> Schema:
    if source.schema is None:
        raise DefinitionError(
            f"the columns of channel {source.name!r} are not known when definitions load",
            next=f"declare them: nova.Channel({source.name!r}, schema='id int, ...')",
        )
    return source.schema


def _column(schema: Schema, name: str, argument: str) -> str:
    """The name of a column as its channel declares it."""
    by_lower = {known.lower(): known for known in schema.names}
    if name.lower() not in by_lower:
        raise DefinitionError(
            f"{argument}: there is no column {name!r}{did_you_mean(name, schema.names)}",
            expected=", ".join(schema.names),
        )
    return by_lower[name.lower()]


def _check_columns(source: Channel, schema: Schema, names: Iterable[str]) -> None:
    wanted = set(names)
    for field in schema.fields:
        if field.name in wanted and not can_be_key(field.type):
            raise DefinitionError(
                f"column {field.name!r} of channel {source.name!r} has maps, which Spark cannot compare",
                next=f"leave the column out: except_columns=[{field.name!r}]",
            )


def _check_names_are_free(source: Channel, names: Iterable[str], added: Iterable[str]) -> None:
    for name in names:
        if name.lower() in added:
            raise DefinitionError(
                f"apply_changes adds a column {name.lower()!r}, and channel {source.name!r} has one",
                next=f"leave the column out: except_columns=[{name!r}]",
            )


def _deletion(schema: Schema, condition: str | None) -> exp.Expr:
    """The condition for records that delete their rows."""
    if condition is None:
        return exp.false()
    text = SqlText("delete_when", f"SELECT {condition}")
    tree = parse_statement(text)
    is_one_value = isinstance(tree, exp.Select) and {k for k, v in tree.args.items() if v} == {"expressions"}
    if not is_one_value or len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Alias | exp.Star):
        raise text.error("delete_when is not one condition", None, expected="a condition such as op = 'D'")
    value: exp.Expr = tree.expressions[0]
    if (inner := value.find(exp.Query, exp.AggFunc, exp.Window)) is not None:
        raise text.error("delete_when depends on more than one record", inner, expected="a condition over its columns")
    for column in value.find_all(exp.Column):
        if column.name.lower() not in map(str.lower, schema.names):
            suggestion = did_you_mean(column.name, schema.names)
            raise text.error(
                f"there is no column {column.name!r}{suggestion}", column, expected=", ".join(schema.names)
            )
    return value
