"""Inserts: data from outside, as one block of one channel; the same begin, stage and commit as any execution."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from nova_assets.errors import CommitConflict, DefinitionError, NotSupported, NovaError
from nova_assets.lease import heartbeat
from nova_assets.model.block import Kind
from nova_assets.model.commit import Commit, CommitRequest, HeadAt, Publish
from nova_assets.model.execution import Execution
from nova_assets.model.ports import Frame
from nova_assets.model.schema import DELETED, Schema, reconcile
from nova_assets.model.timeline import History
from nova_assets.runtime import Runtime
from nova_assets.staging import refuse_changed_model, requirements

log = logging.getLogger("nova_assets.insert")

Finder = Callable[[str], History]


@dataclass(frozen=True, slots=True)
class InsertCheck:
    """What an insert would do: the answer of a dry run."""

    channel: str
    kind: Kind
    head: int
    schema: Schema


class Inserts:
    """Puts data onto channels."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine

    def insert(self, channel: str, data: Any, kind: Kind = "delta", idempotency_key: str | None = None) -> Commit:
        """Add one block. Either all of it is there afterwards, or nothing is.

        A base is planned again when the channel moves meanwhile; the last one wins, whole.

        Raises:
            ChannelNotFound, SchemaMismatch, BadKey, BadRecord, EmptyInput, UnrepresentableChange, ModelChanged.
        """
        _check_kind(kind)
        if idempotency_key is not None:
            done = self.catalog.commit_of_key(channel, idempotency_key)
            if done is not None:
                return replace(done, repeated=True)
        frame = self.engine.take(data, self._open(channel).schema)
        for attempt in range(1, self.runtime.attempts + 1):
            try:
                return self._once(channel, frame, kind, idempotency_key)
            except CommitConflict as conflict:
                log.info("insert into %s is planned again: %s", channel, conflict.what)
                if attempt == self.runtime.attempts:
                    raise
        raise AssertionError("unreachable")

    def check(self, channel: str, data: Any, kind: Kind = "delta") -> InsertCheck:
        """What ``insert`` would check before it writes. Changes nothing."""
        _check_kind(kind)
        state = self._open(channel)
        given = self.engine.schema_of(self.engine.take(data, state.schema))
        definition = self.catalog.channel(channel).channel
        schema = reconcile(channel, state.schema, given.without(DELETED), definition.on_schema_change)
        if kind == "delta":
            refuse_changed_model(state)
        return InsertCheck(channel, kind, state.head, schema)

    def _open(self, channel: str) -> History:
        history = self.catalog.history(channel)
        if self.catalog.channel(channel).channel.partitions:
            raise NotSupported(
                f"channel {channel!r} is partitioned; blocks per partition are not written yet",
                next="declare the channel without partitions for now",
                channel=channel,
            )
        return history

    def _once(self, channel: str, frame: Frame, kind: Kind, key: str | None) -> Commit:
        execution = self.runtime.begin_insert(channel)
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                request = self._stage(execution, channel, frame, kind, key)
                commit = self.runtime.commit_insert(request)
        except BaseException as error:
            self._undo(execution, f"{type(error).__name__}: {error}")
            raise
        if commit.repeated or not commit.numbers:
            self._tidy(execution)
        return commit

    def _stage(self, execution: Execution, channel: str, frame: Frame, kind: Kind, key: str | None) -> CommitRequest:
        head = execution.pins[channel].head
        history = self.catalog.history(channel, head)
        definition = self.catalog.channel(channel).channel
        manifest = self.runtime.staging.write(execution, channel, kind, definition, history, frame)
        block = self.runtime.staging.complete(execution)[channel]
        published = (Publish(block.id, channel, kind, block.manifest or manifest, history.merge, origin="insert"),)
        request = CommitRequest(
            id=uuid.uuid4().hex,
            execution_id=execution.id,
            epoch=execution.epoch,
            binding=None,
            publish=published,
            heads=(HeadAt(channel, head),) if kind == "base" else (),
            idempotency=None if key is None else (channel, key),
            **requirements(published, {channel: history}),
        )
        return request

    def _undo(self, execution: Execution, reason: str) -> None:
        """Leave nothing: the caller is told, so nobody will resume this. Refused by the catalog if it was committed."""
        with suppress(NovaError):
            self.catalog.abort(execution.id, reason[:4000])
            self._tidy(execution)

    def _tidy(self, execution: Execution) -> None:
        """Remove what was staged and is not part of any block. What cannot be removed now is swept later."""
        with suppress(NovaError):
            staged = self.catalog.staged(execution.id)
            for block in staged:
                self.engine.delete(block.folder)
            self.catalog.swept([b.id for b in staged])


def _check_kind(kind: str) -> None:
    if kind not in ("base", "delta"):
        raise DefinitionError(
            f"an insert is of kind {kind!r}", expected='"delta" (adds to the channel) or "base" (replaces it)'
        )
