"""External channels, kept current: their locations are looked through, and what is otherwise since is committed, as a
base of each partition that lists the files where they are (BigDataFlow, part 2).

Nothing is copied. Two that look at the same time commit once: the other finds nothing left to say.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nova_assets.errors import CommitConflict, DefinitionError, NovaError, SchemaMismatch
from nova_assets.execution.lease import heartbeat
from nova_assets.execution.runtime import Runtime
from nova_assets.masking import get_logger
from nova_assets.model.block import Block, DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.commit import CommitRequest, HeadAt, Publish
from nova_assets.model.execution import Execution
from nova_assets.model.external_files import GONE, Outside
from nova_assets.model.external_table import Described, Refreshed
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.external_changes import Content, Found, News, found, news

log = get_logger("nova_assets.external")

SLICE = 500
"""So many partitions are committed at a time."""

AT_ONCE = 8
"""Partitions whose files are looked into side by side."""


class Refreshing:
    """Looks at what others have written.

    Args:
        root: from where a relative location goes.
    """

    def __init__(self, runtime: Runtime, root: Path) -> None:
        self.runtime = runtime
        self.catalog = runtime.catalog
        self.engine = runtime.engine
        self.root = root

    @property
    def channels(self) -> list[Channel]:
        """The external channels of the project."""
        return [c for c in self.runtime.project.channels if c.external is not None]

    def preview(self, name: str, *, gone: bool = False) -> Refreshed:
        """What ``refresh`` would commit. Changes nothing, and opens no file."""
        channel = self._external(name)
        known = name in {c.channel.name for c in self.catalog.channels()}
        return self._looked(channel, self.catalog.history(name) if known else None, gone).said()

    def refresh(self, name: str, *, gone: bool = False) -> Refreshed:
        """Commit what has changed, some partitions at a time. A partition with a file that is not as the channel says
        stays as it was.

        Args:
            gone: whatever is gone may be gone, however much it is.

        Raises:
            DefinitionError: the channel is not external.
            SourceUnavailable: its location cannot be listed.
            NotSupported: it is a table of a format that says elsewhere which files count.
            SchemaMismatch: no file has a column of it.
        """
        channel = self._external(name)
        self.catalog.register([channel], (), False)
        for attempt in range(1, self.runtime.attempts + 1):
            # First what is known, then what is there: what is known is never newer than what was looked at.
            looked = self._looked(channel, self.catalog.history(name), gone)
            try:
                return self._committed(looked)
            except CommitConflict as conflict:
                log.info("%s is looked at again: %s", name, conflict.what)
                if attempt == self.runtime.attempts:
                    raise
        raise AssertionError("unreachable")

    def refresh_all(self) -> list[Refreshed]:
        """All external channels of the project. What cannot be looked at stops no other, and is as it was."""
        return [self._tried(c.name) for c in self.channels]

    def _tried(self, name: str) -> Refreshed:
        try:
            return self.refresh(name)
        except NovaError as error:
            log.warning("external channel %s cannot be looked at: %s", name, error)
            return Refreshed(name, error=str(error))

    def _committed(self, looked: _Looked) -> Refreshed:
        """Commit what is to be committed, in slices: what was done of a large location stays done."""
        bad: dict[str, str] = {}
        columns: set[str] = set()
        head, seq = looked.head, None
        for some in _slices(looked.changes.changed):
            manifests = self._described(looked, some, bad, columns)
            if manifests and looked.head == 0:
                _refuse_absent(looked.channel, columns)
            if manifests:
                head = seq = self._commit(looked, head, manifests)
        if looked.changes.gone:
            seq = self._commit(looked, head, looked.gone())
        return looked.said(bad, seq)

    def _commit(self, looked: _Looked, head: int, manifests: Mapping[str, Manifest]) -> int:
        """Give partitions their new content, if nothing was committed since. Gives the number that it took.

        Raises:
            CommitConflict: something was.
        """
        name = looked.channel.name
        execution = self.runtime.begin_insert(name)
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                if execution.pins[name].head != head:
                    raise CommitConflict(f"channel {name!r} was refreshed meanwhile", reason="head", channel=name)
                commit = self.runtime.commit_insert(_request(execution, looked, head, manifests))
        except BaseException as error:
            self.runtime.staging.undo(execution, error)
            raise
        return commit.numbers[name]

    def _looked(self, channel: Channel, history: History | None, gone: bool) -> _Looked:
        """What is there, beside what is known."""
        known = {} if history is None else _known(history)
        location = self._location(channel)
        expected = self._expected(channel)
        there = found(channel, location, self.engine.look(location), expected and expected | known.keys())
        schema = (history.schema if history is not None else None) or channel.schema
        assert schema is not None  # an external channel has one
        head = 0 if history is None else history.head
        return _Looked(channel, location, schema, head, expected is not None, there, news(there, known, gone=gone))

    def _external(self, name: str) -> Channel:
        channel = self.runtime.project.channel(name)
        if channel.external is None:
            raise DefinitionError(
                f"channel {name!r} is not external",
                expected=", ".join(c.name for c in self.channels) or "(the project has none that is)",
            )
        return channel

    def _location(self, channel: Channel) -> str:
        assert channel.external is not None
        given = channel.external.location
        if "://" in given:
            return given.rstrip("/")
        return os.path.normpath((self.root / Path(given).expanduser()).absolute())

    def _expected(self, channel: Channel) -> frozenset[str] | None:
        """The partitions that there should be, where a head before its statement says so."""
        assert channel.external is not None
        expected = channel.external.expected
        return None if expected is None else frozenset(expected(self.catalog.now()))

    def _described(
        self, looked: _Looked, some: Mapping[str, Content], bad: dict[str, str], columns: set[str]
    ) -> dict[str, Manifest]:
        """What is to be committed of some partitions.

        Args:
            bad: told what is wrong with those of which nothing is.
            columns: told those that some file has.
        """

        def one(partition: str, content: Content) -> Described | NovaError:
            try:
                return self.engine.described(looked.channel, partition, content.files)
            except NovaError as error:
                return error

        found: dict[str, Manifest] = {}
        with ThreadPoolExecutor(AT_ONCE, "nova-external") as pool:
            each = pool.map(one, some, some.values())
            for (partition, content), of in zip(some.items(), each, strict=True):
                if isinstance(of, NovaError):
                    bad[partition] = str(of)
                else:
                    columns |= of.columns
                    found[partition] = looked.manifest(of.files, content.version)
        return found


@dataclass(frozen=True)
class _Looked:
    """What was found of a channel.

    Args:
        schema: as the catalog has it.
        head: up to which number it was known before.
        is_told: whether it is said which partitions there should be.
    """

    channel: Channel
    location: str
    schema: Schema
    head: int
    is_told: bool
    there: Found
    changes: News

    def manifest(self, files: tuple[DataFile, ...], version: str) -> Manifest:
        assert self.channel.external is not None
        outside = Outside(self.location, version)
        return Manifest(files, self.schema, format=self.channel.external.format, outside=outside)

    def gone(self) -> dict[str, Manifest]:
        """What is left of partitions of which nothing is there: where they should be there, not even the partition, so
        that who reads it waits; else it is empty from now on, which is news to who has read it."""
        if self.is_told:
            return {p: Manifest((), self.schema) for p in self.changes.gone}
        return {p: self.manifest((), GONE) for p in self.changes.gone}

    def said(self, bad: Mapping[str, str] | None = None, seq: int | None = None) -> Refreshed:
        """What a person is told."""
        return Refreshed(
            self.channel.name,
            tuple(self.changes.changed),
            self.changes.gone,
            self.changes.held,
            self.there.unfinished,
            self.there.ignored,
            tuple(sorted(self.there.beyond)),
            dict(bad or {}),
            self.changes.same,
            seq,
        )


def _known(history: History) -> dict[str, str]:
    """Partition -> the version that is committed of it, of those that are there."""
    bases = modes.snapshot(history, history.head).bases
    outside = {b.partition: b.manifest.outside for b in bases if isinstance(b, Block)}
    return {p: o.version for p, o in outside.items() if o is not None and o.version != GONE}


def _slices(changed: Mapping[str, Content]) -> Iterator[dict[str, Content]]:
    names = list(changed)
    for n in range(0, len(names), SLICE):
        yield {p: changed[p] for p in names[n : n + SLICE]}


def _refuse_absent(channel: Channel, columns: set[str]) -> None:
    """A column that no file has is another one's name, more likely than one that is still to come."""
    assert channel.schema is not None
    own = {c.lower() for c in channel.partition_columns}
    lacking = [f.name for f in channel.schema.fields if f.name.lower() not in columns | own]
    if lacking:
        raise SchemaMismatch(
            f"no file of external channel {channel.name!r} has {', '.join(map(repr, lacking))}",
            found=", ".join(sorted(columns)) or "no column",
            expected=", ".join(n for n in channel.schema.names if n.lower() not in own),
            next="name the columns as the files do, or leave these out",
            channel=channel.name,
        )


def _request(execution: Execution, looked: _Looked, head: int, manifests: Mapping[str, Manifest]) -> CommitRequest:
    name, model = looked.channel.name, looked.channel.merge
    publish = tuple(
        Publish(uuid.uuid4().hex, name, "base", m, model, p, "drop" if m.outside is None else "insert")
        for p, m in manifests.items()
    )
    return CommitRequest(
        id=uuid.uuid4().hex,
        execution_id=execution.id,
        epoch=execution.epoch,
        binding=None,
        publish=publish,
        heads=(HeadAt(name, head),),
        details={"refreshed": len(publish)},
    )
