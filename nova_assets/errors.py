"""Error classes: one for each situation on which a caller can act (DESIGN §9).

Every error carries its fields as attributes, a stable ``code``, and a message of up to four parts: what happened, what
was found, what was expected, and the next command to type. An operation that raises one of these errors has changed
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_assets.nova_error import NovaError as NovaError


def error_from_dict(parts: Mapping[str, Any]) -> NovaError:
    """Rebuild an error from its ``as_dict`` form, sent by another process."""
    fields = {str(n): v for n, v in parts.items() if n not in {"code", "what", "help_url"}}
    return error_class_of_code(str(parts["code"]))(str(parts["what"]), **fields)


def error_class_of_code(code: str) -> type[NovaError]:
    """Error class with a given code. ``NovaError`` for an unknown code."""
    kinds = {e.code: e for e in globals().values() if isinstance(e, type) and issubclass(e, NovaError)}
    return kinds.get(code, NovaError)


class DefinitionError(NovaError):
    """Definitions contradict each other or break a rule. ``problems`` lists all problems at once."""

    code = "NOVA-DEFINITION"

    @classmethod
    def of(cls, problems: list[str], where: str, next: str | None = None) -> DefinitionError:
        """One error for all the problems of ``where``."""
        if len(problems) == 1:
            return cls(f"{where}: {problems[0]}", next=next, problems=problems)
        listed = "".join(f"\n  {n}. {p}" for n, p in enumerate(problems, start=1))
        return cls(f"{where}: {len(problems)} problems{listed}", next=next, problems=problems)


class DefinitionConflict(DefinitionError):
    """A different definition is already registered under this name."""

    code = "NOVA-DEFINITION-CONFLICT"


class SqlError(DefinitionError):
    """A query cannot be parsed, or its types or keys cannot be derived.

    ``line``, ``column`` and ``snippet`` locate the failure.
    """

    code = "NOVA-SQL"

    def render(self) -> str:
        """The message, with the failing line of SQL below its first line."""
        first, *others = super().render().split("\n")
        return "\n".join([first, *([self.fields["snippet"]] if "snippet" in self.fields else []), *others])


class QueryRefused(NovaError):
    """Spark's parser or analyser rejects a query.

    ``reason`` is Spark's message. ``fragment`` is the part of the query that the message refers to, or None.
    """

    code = "NOVA-QUERY-REFUSED"


class InputsMissing(NovaError):
    """A dataset reads partitions of other datasets that no task has made yet."""

    code = "NOVA-INPUTS-MISSING"


class SettingsError(NovaError):
    """A setting is missing or misspelt, or it names something that cannot be loaded."""

    code = "NOVA-SETTINGS"


class SchemaMismatch(NovaError):
    """Data does not have the channel's columns or types (R18)."""

    code = "NOVA-SCHEMA-MISMATCH"


class BadKey(NovaError):
    """A key is missing or null, or one delta holds several live rows of one key (R11)."""

    code = "NOVA-BAD-KEY"


class SumOverflow(NovaError):
    """A sum of a ``Keyed`` channel overflows its column's type, or could overflow it."""

    code = "NOVA-SUM-OVERFLOW"


class BadRecord(NovaError):
    """A file or record cannot be read in its declared format."""

    code = "NOVA-BAD-RECORD"


class TooManyBadRecords(NovaError):
    """A batch has more bad records than its source allows. Nothing of the batch was ingested."""

    code = "NOVA-TOO-MANY-BAD-RECORDS"


class SourceUnavailable(NovaError):
    """The folder, object store or queue of arriving files does not answer."""

    code = "NOVA-SOURCE-UNAVAILABLE"


class GroupSealed(NovaError):
    """The day or hour is sealed, and its channel quarantines late data."""

    code = "NOVA-GROUP-SEALED"


class TableTaken(NovaError):
    """The table that a channel would be published to exists already and belongs to another owner."""

    code = "NOVA-TABLE-TAKEN"


class TableUnavailable(NovaError):
    """A published table cannot be reached or written. Its readers still see the previous version."""

    code = "NOVA-TABLE-UNAVAILABLE"


class EmptyInput(NovaError):
    """The input of an insert is empty."""

    code = "NOVA-EMPTY-INPUT"


class PartitionError(NovaError):
    """A partition that a channel or binding does not have, or that a row cannot belong to (R13)."""

    code = "NOVA-PARTITION"


class UnrepresentableChange(NovaError):
    """The channel's merge model cannot represent this change for its consumers (R10).

    Accepting the change would lose rows silently.
    """

    code = "NOVA-UNREPRESENTABLE-CHANGE"


class ModelChanged(NovaError):
    """A channel's merge model, or its columns, were changed. The change takes effect with a base (R18, R23)."""

    code = "NOVA-MODEL-CHANGED"


class ChannelNotFound(NovaError):
    """No channel of that name is registered."""

    code = "NOVA-CHANNEL-NOT-FOUND"


class BindingNotFound(NovaError):
    """No binding of that name exists."""

    code = "NOVA-BINDING-NOT-FOUND"


class DefinitionRemoved(DefinitionError):
    """A channel, workflowette, binding or trigger was removed, and its definition is still in use."""

    code = "NOVA-DEFINITION-REMOVED"


class DefinitionNotFound(NovaError):
    """No channel, workflowette, binding or trigger of that name is registered."""

    code = "NOVA-DEFINITION-NOT-FOUND"


class VersionNotFound(NovaError):
    """The channel has no such sequence number (yet)."""

    code = "NOVA-VERSION-NOT-FOUND"

    @classmethod
    def of(cls, channel: str, number: int, head: int) -> VersionNotFound:
        """The error for a sequence number that a channel does not have."""
        what = f"channel {channel!r} has no version {number}"
        return cls(what, found=number, expected=f"0 to {head}", channel=channel, head=head)


class BlockCollected(NovaError):
    """The blocks of the requested version were collected, so the snapshot can no longer be read (R15)."""

    code = "NOVA-BLOCK-COLLECTED"


class ExecutionInProgress(NovaError):
    """Another execution of the same binding and partition holds the lease (R6). Only one may be live."""

    code = "NOVA-EXECUTION-IN-PROGRESS"


class ExecutionNotLive(NovaError):
    """The execution was aborted, superseded or committed. It cannot continue or be resumed (R4, R6)."""

    code = "NOVA-EXECUTION-NOT-LIVE"


class CommitConflict(NovaError):
    """A head or cursor that the execution relied on has moved since it began.

    The execution is aborted and planned again (R6).
    """

    code = "NOVA-COMMIT-CONFLICT"


class CommitOutcomeUnknown(NovaError):
    """The connection was lost during COMMIT, and the catalog cannot be asked yet whether the commit is durable (R7)."""

    code = "NOVA-COMMIT-OUTCOME-UNKNOWN"


class IdempotencyConflict(NovaError):
    """The idempotency key was used before, for different content."""

    code = "NOVA-IDEMPOTENCY-CONFLICT"


class TaskFailed(NovaError):
    """A task raised an exception. Its execution keeps its pins and can be resumed (R4)."""

    code = "NOVA-TASK-FAILED"


class CheckFailed(NovaError):
    """A blocking check failed on the results of an execution. Nothing of the execution was published."""

    code = "NOVA-CHECK-FAILED"


class CatalogUnavailable(NovaError):
    """The catalog does not answer."""

    code = "NOVA-CATALOG-UNAVAILABLE"


class ArgumentRefused(DefinitionError):
    """A method was called with a value of a wrong type. ``argument`` names the parameter."""

    code = "NOVA-ARGUMENT"


class Renamed(NovaError, AttributeError):
    """A public name has changed. ``new_name`` is the name to use."""

    code = "NOVA-RENAMED"


class ValueRefused(NovaError):
    """The catalog cannot store a value: it is too long, or it holds characters that the database does not support."""

    code = "NOVA-VALUE-REFUSED"


class CatalogVersion(NovaError):
    """The catalog was created by another version of this package, or the database is no catalog."""

    code = "NOVA-CATALOG-VERSION"


class WarehouseUnavailable(NovaError):
    """The warehouse cannot be read or written."""

    code = "NOVA-WAREHOUSE-UNAVAILABLE"


class WarehouseMismatch(WarehouseUnavailable):
    """The warehouse is not the one that holds the catalog's blocks."""

    code = "NOVA-WAREHOUSE-MISMATCH"


class CopyUndecided(NovaError):
    """The catalog is a copy, and nobody has decided yet whether the copy or the original owns the warehouse."""

    code = "NOVA-COPY-UNDECIDED"


class DagsterUnavailable(NovaError):
    """Dagster's webserver does not answer, or does not know the requested object."""

    code = "NOVA-DAGSTER-UNAVAILABLE"


class FileMissing(NovaError):
    """A file that the catalog lists is missing from the warehouse, or was changed there."""

    code = "NOVA-FILE-MISSING"


class FileAltered(FileMissing):
    """The bytes of a warehouse file differ from those that were written."""

    code = "NOVA-FILE-ALTERED"


class EngineUnavailable(NovaError):
    """Java or Spark is missing or cannot be started."""

    code = "NOVA-ENGINE-UNAVAILABLE"


class TimelineDiffers(NovaError):
    """A client's timeline of a channel differs from the channel's own timeline.

    One of the two was set back, or belongs to another catalog.
    """

    code = "NOVA-TIMELINE-DIFFERS"


class StorageFailed(NovaError):
    """File views of channels cannot be stored: the disk is full, or its content is damaged. No job fails for this
    reason.
    """

    code = "NOVA-STORAGE-FAILED"


class NotSupported(NovaError):
    """Legal, but not implemented yet, or not possible on this engine. The message names a workaround."""

    code = "NOVA-NOT-SUPPORTED"


class ServiceRefused(NovaError):
    """The service refuses its listen address: others could reach it without a token, or read its traffic."""

    code = "NOVA-SERVICE-REFUSED"


class PortTaken(NovaError):
    """Another process already listens on the port."""

    code = "NOVA-PORT-TAKEN"


class ServiceUnavailable(NovaError):
    """The service does not answer, or is shutting down."""

    code = "NOVA-SERVICE-UNAVAILABLE"


class ServiceBusy(NovaError):
    """The service has reached its limit of active requests. Retry in a moment."""

    code = "NOVA-SERVICE-BUSY"


class BadToken(NovaError):
    """A request has no token, or an invalid one."""

    code = "NOVA-BAD-TOKEN"


class NotAllowed(NovaError):
    """The token does not grant this right."""

    code = "NOVA-NOT-ALLOWED"


class RequestRefused(NovaError):
    """The service rejects the request. ``status`` is the HTTP status."""

    code = "NOVA-REQUEST-REFUSED"


class RequestTimedOut(NovaError):
    """A request exceeded its time limit. The change that it asked for may have happened all the same."""

    code = "NOVA-REQUEST-TIMED-OUT"


class NotificationFailed(NovaError):
    """A notifier could not deliver a notification. It is tried again.

    ``unavailable``: the receiver does not answer, so others would fail, too. ``retry_after``: seconds that it asks for.
    """

    code = "NOVA-NOTIFICATION-FAILED"
