"""Redaction of blocks and errors for callers who may change a channel but not read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from nova_assets import errors
from nova_assets.model.block import Block
from nova_assets.model.commit import Commit
from nova_assets.nova_error import NovaError
from nova_assets.service.http.guard import Caller
from nova_assets.service.http.problems import problem_from_error
from nova_assets.service.shapes import BlockShape, CommitShape


def visible_block_shapes(caller: Caller, channel: str, blocks: Iterable[Block]) -> list[BlockShape]:
    """Blocks of a channel, without content if the caller may not read the channel."""
    shapes = [BlockShape.of(b) for b in blocks]
    return shapes if caller.has_right("read", channel) else [s.without_content() for s in shapes]


def visible_commit_shape(caller: Caller, channel: str, commit: Commit) -> CommitShape:
    """Commit to a channel, with blocks redacted like ``visible_block_shapes``."""
    return CommitShape.of(commit).model_copy(update={"blocks": visible_block_shapes(caller, channel, commit.blocks)})


_ERRORS_WITHOUT_COLUMNS = (
    *(errors.ChannelNotFound, errors.NotAllowed, errors.EmptyInput, errors.GroupSealed, errors.IdempotencyConflict),
    *(errors.CommitConflict, errors.RequestRefused, errors.RequestTimedOut, errors.ServiceBusy),
    *(errors.ServiceUnavailable, errors.CommitOutcomeUnknown),
)
"""Errors whose messages never name columns or types. All other messages are replaced."""

_REDACTED_TEXTS: dict[type[NovaError], str] = {
    errors.SchemaMismatch: "the rows do not have the columns and types of channel {!r}",
    errors.BadRecord: "the body contains a record that is not a row of channel {!r}",
    errors.BadKey: "a row for channel {!r} has no key, or several rows have the same key",
    errors.PartitionError: "the rows belong to no partition of channel {!r}, or not to the given partition",
}


@contextmanager
def redact_errors(caller: Caller, channel: str) -> Iterator[None]:
    """Remove column names and types from errors if the caller may not read the channel.

    Raises:
        NovaError: of the same class and code as the error that the body raises.
    """
    try:
        yield
    except NovaError as error:
        is_message_sent = problem_from_error(error).status < 500  # messages of server errors are never sent
        if caller.has_right("read", channel) or isinstance(error, _ERRORS_WITHOUT_COLUMNS) or not is_message_sent:
            raise
        public_text = _REDACTED_TEXTS.get(type(error), "channel {!r} does not accept the body").format(channel)
        positions = {name: error.fields[name] for name in ("line", "row") if isinstance(error.fields.get(name), int)}
        raise type(error)(
            public_text,
            found=" ".join(f"{name} {number}" for name, number in positions.items()) or None,
            next=f"ask someone who may read the channel for its schema: GET /v1/channels/{channel}/schema",
            channel=channel,
        ) from error
