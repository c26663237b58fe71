"""What can go wrong, one kind for each situation that a caller can act on (DESIGN §9).

Every error carries its fields as attributes, a stable ``code``, and a message of up to four parts: what happened,
what was found, what was expected, and the next thing to type. Nothing here touches data: whoever raises one of these
has changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_assets.nova_error import NovaError as NovaError


def error_from_dict(parts: Mapping[str, Any]) -> NovaError:
    """The error of which ``as_dict`` was sent by another process."""
    known = {"code", "what", "found", "expected", "next"}
    fields = {str(n): v for n, v in parts.items() if n not in known}
    return kind_of_code(str(parts["code"]))(
        str(parts["what"]),
        found=parts.get("found"),
        expected=parts.get("expected"),
        next=parts.get("next"),
        **fields,
    )


def kind_of_code(code: str) -> type[NovaError]:
    """The kind of error that has a code; ``NovaError`` for a code that no kind has."""
    kinds = {e.code: e for e in globals().values() if isinstance(e, type) and issubclass(e, NovaError)}
    return kinds.get(code, NovaError)


class DefinitionError(NovaError):
    """Definitions contradict themselves or a rule. ``problems`` lists every one of them at once."""

    code = "NOVA-DEFINITION"

    @classmethod
    def of(cls, problems: list[str], where: str) -> DefinitionError:
        """One error out of all the problems that were found in ``where``."""
        if len(problems) == 1:
            return cls(f"{where}: {problems[0]}", problems=problems)
        listed = "".join(f"\n  {n}. {p}" for n, p in enumerate(problems, start=1))
        return cls(f"{where}: {len(problems)} problems{listed}", problems=problems)


class DefinitionConflict(DefinitionError):
    """Another definition is registered under this name already."""

    code = "NOVA-DEFINITION-CONFLICT"


class SqlError(DefinitionError):
    """A query cannot be read, or what it needs does not follow from it. ``line``, ``column`` and ``snippet`` say where
    it fails."""

    code = "NOVA-SQL"

    def render(self) -> str:
        """The message, with the line in question below its first."""
        first, *others = super().render().split("\n")
        return "\n".join([first, *([self.fields["snippet"]] if "snippet" in self.fields else []), *others])


class QueryRefused(NovaError):
    """Spark's parser or analyser does not take a query. ``reason`` is its message, ``fragment`` the part of the query
    that it means, or None."""

    code = "NOVA-QUERY-REFUSED"


class InputsMissing(NovaError):
    """A dataset reads partitions of others that no task has made yet."""

    code = "NOVA-INPUTS-MISSING"


class SettingsError(NovaError):
    """A setting is missing, misspelt or names something that cannot be loaded."""

    code = "NOVA-SETTINGS"


class SchemaMismatch(NovaError):
    """Data does not have the channel's columns or types (R18)."""

    code = "NOVA-SCHEMA-MISMATCH"


class BadKey(NovaError):
    """A key is missing or null, or one delta holds several live rows of one key (R11)."""

    code = "NOVA-BAD-KEY"


class SumOverflow(NovaError):
    """A sum of a ``Keyed`` channel would be, or is, no value of its column's type."""

    code = "NOVA-SUM-OVERFLOW"


class BadRecord(NovaError):
    """A file or record cannot be read as what it is said to be."""

    code = "NOVA-BAD-RECORD"


class TooManyBadRecords(NovaError):
    """More records of a batch are bad than its source allows; nothing of it was taken."""

    code = "NOVA-TOO-MANY-BAD-RECORDS"


class SourceUnavailable(NovaError):
    """The folder, object store or queue from which files arrive does not answer."""

    code = "NOVA-SOURCE-UNAVAILABLE"


class GroupSealed(NovaError):
    """The day or hour is complete, and its channel sets aside what comes after that."""

    code = "NOVA-GROUP-SEALED"


class TableTaken(NovaError):
    """What a channel is to be published in is there already, and is somebody else's."""

    code = "NOVA-TABLE-TAKEN"


class TableUnavailable(NovaError):
    """A table in which a channel is published cannot be reached or written; readers see what they saw."""

    code = "NOVA-TABLE-UNAVAILABLE"


class EmptyInput(NovaError):
    """Nothing was given where something has to be inserted."""

    code = "NOVA-EMPTY-INPUT"


class PartitionError(NovaError):
    """A partition that a channel or binding does not have, or that a row cannot be in (R13)."""

    code = "NOVA-PARTITION"


class UnrepresentableChange(NovaError):
    """The channel's merge model cannot carry this change to its consumers; accepting it would lose rows silently
    (R10)."""

    code = "NOVA-UNREPRESENTABLE-CHANGE"


class ModelChanged(NovaError):
    """A channel's merge model was changed; it takes effect by a base (R18)."""

    code = "NOVA-MODEL-CHANGED"


class ChannelNotFound(NovaError):
    """No channel of that name is registered."""

    code = "NOVA-CHANNEL-NOT-FOUND"


class BindingNotFound(NovaError):
    """No binding of that name is known."""

    code = "NOVA-BINDING-NOT-FOUND"


class VersionNotFound(NovaError):
    """The channel has no such sequence number (yet)."""

    code = "NOVA-VERSION-NOT-FOUND"

    @classmethod
    def of(cls, channel: str, number: int, head: int) -> VersionNotFound:
        """The error for a number that a channel does not have."""
        what = f"channel {channel!r} has no version {number}"
        return cls(what, found=number, expected=f"0 to {head}", channel=channel, head=head)


class BlockCollected(NovaError):
    """The version asked for was collected; an older snapshot can no longer be answered (R15)."""

    code = "NOVA-BLOCK-COLLECTED"


class ExecutionInProgress(NovaError):
    """One live execution per binding and partition (R6): another one holds the lease."""

    code = "NOVA-EXECUTION-IN-PROGRESS"


class ExecutionNotLive(NovaError):
    """The execution was aborted, superseded or committed; it cannot go on or be resumed (R4, R6)."""

    code = "NOVA-EXECUTION-NOT-LIVE"


class CommitConflict(NovaError):
    """Something that the execution relied on has moved since it began; it is aborted and planned again (R6)."""

    code = "NOVA-COMMIT-CONFLICT"


class CommitOutcomeUnknown(NovaError):
    """The connection was lost during COMMIT and the catalog cannot be asked yet whether it took (R7)."""

    code = "NOVA-COMMIT-OUTCOME-UNKNOWN"


class IdempotencyConflict(NovaError):
    """The idempotency key was used before, for other content."""

    code = "NOVA-IDEMPOTENCY-CONFLICT"


class TaskFailed(NovaError):
    """A task raised; its execution keeps its pins and can be resumed (R4)."""

    code = "NOVA-TASK-FAILED"


class CheckFailed(NovaError):
    """A blocking check does not hold of what an execution made: nothing of it was published."""

    code = "NOVA-CHECK-FAILED"


class CatalogUnavailable(NovaError):
    """The catalog does not answer."""

    code = "NOVA-CATALOG-UNAVAILABLE"


class ArgumentRefused(DefinitionError):
    """A method was called with a value of another type than it takes. ``argument`` names it."""

    code = "NOVA-ARGUMENT"


class Renamed(NovaError, AttributeError):
    """A public name has changed. ``new_name`` is the name to use."""

    code = "NOVA-RENAMED"


class ValueRefused(NovaError):
    """The catalog cannot keep a value: it is too long, or holds characters that the database has none for."""

    code = "NOVA-VALUE-REFUSED"


class CatalogVersion(NovaError):
    """The catalog was made by another version of this package, or holds something else."""

    code = "NOVA-CATALOG-VERSION"


class WarehouseUnavailable(NovaError):
    """The warehouse cannot be read or written."""

    code = "NOVA-WAREHOUSE-UNAVAILABLE"


class WarehouseMismatch(WarehouseUnavailable):
    """The warehouse is not the one that holds the catalog's blocks."""

    code = "NOVA-WAREHOUSE-MISMATCH"


class DagsterUnavailable(NovaError):
    """Dagster's webserver does not answer, or does not know what is asked of it."""

    code = "NOVA-DAGSTER-UNAVAILABLE"


class FileMissing(NovaError):
    """A file that the catalog lists is not in the warehouse, or was changed there."""

    code = "NOVA-FILE-MISSING"


class FileAltered(FileMissing):
    """A file of the warehouse has other bytes than were written."""

    code = "NOVA-FILE-ALTERED"


class EngineUnavailable(NovaError):
    """No Java or no Spark to run with."""

    code = "NOVA-ENGINE-UNAVAILABLE"


class TimelineDiffers(NovaError):
    """Somebody knows a channel by another timeline than it has: one of both was set back, or is of another catalog."""

    code = "NOVA-TIMELINE-DIFFERS"


class StorageFailed(NovaError):
    """Views of channels cannot be kept: the disk is full, or what is on it is damaged. No job fails for it."""

    code = "NOVA-STORAGE-FAILED"


class NotSupported(NovaError):
    """Legal, but not built yet, or not possible on this engine; the message says which way round there is."""

    code = "NOVA-NOT-SUPPORTED"


class ServiceRefused(NovaError):
    """The service may not listen as it is asked to: others could reach it without a token, or read what is sent."""

    code = "NOVA-SERVICE-REFUSED"


class PortTaken(NovaError):
    """Another process listens on the port already."""

    code = "NOVA-PORT-TAKEN"


class ServiceUnavailable(NovaError):
    """The service does not answer, or is about to stop."""

    code = "NOVA-SERVICE-UNAVAILABLE"


class ServiceBusy(NovaError):
    """The service has as many requests at work as it may; ask again in a moment."""

    code = "NOVA-SERVICE-BUSY"


class BadToken(NovaError):
    """A request has no token, or none that is valid."""

    code = "NOVA-BAD-TOKEN"


class NotAllowed(NovaError):
    """The token does not give this right."""

    code = "NOVA-NOT-ALLOWED"


class RequestRefused(NovaError):
    """The service does not take a request like this: ``status`` says of which kind it is."""

    code = "NOVA-REQUEST-REFUSED"


class RequestTimedOut(NovaError):
    """A request took longer than it may. What it was to change may have been changed all the same."""

    code = "NOVA-REQUEST-TIMED-OUT"
