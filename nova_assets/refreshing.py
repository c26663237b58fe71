"""External channels, kept current: their locations are looked through, and what is otherwise since is committed, as a
base of each partition that lists the files where they are (BigDataFlow, part 2).

Nothing is copied. Two that look at the same time commit once: the other finds nothing left to say.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from nova_assets.errors import CommitConflict, DefinitionError, NovaError, SchemaMismatch
from nova_assets.lease import heartbeat
from nova_assets.model.block import Block, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.commit import CommitRequest, HeadAt, Publish
from nova_assets.model.execution import Execution
from nova_assets.model.external import Outside, Refreshed
from nova_assets.model.timeline import History
from nova_assets.plan import modes
from nova_assets.plan.external import Content, Found, News, found, news
from nova_assets.runtime import Runtime
from nova_assets.sql.datasets import queries_of

log = logging.getLogger("nova_assets.external")


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
        there = self._there(channel)
        state = {c.channel.name for c in self.catalog.channels()}
        known = self._known(self.catalog.history(name)) if name in state else {}
        return _refreshed(channel, there, news(there, known, gone=gone))

    def refresh(self, name: str, *, gone: bool = False) -> Refreshed:
        """Commit what has changed. A partition with a file that is not as the channel says stays as it was.

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
            there = self._there(channel)
            changes = news(there, self._known(self.catalog.history(name)), gone=gone)
            if not changes.changed and not changes.gone:
                return _refreshed(channel, there, changes)
            try:
                return self._committed(channel, there, gone)
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

    def _committed(self, channel: Channel, there: Found, gone: bool) -> Refreshed:
        execution = self.runtime.begin_insert(channel.name)
        try:
            with heartbeat(self.catalog, execution, self.runtime.lease):
                history = self.catalog.history(channel.name, execution.pins[channel.name].head)
                changes = news(there, self._known(history), gone=gone)
                manifests, bad = self._described(channel, history, changes.changed)
                if not manifests and not changes.gone:
                    self.runtime.staging.undo(execution, "nothing of it could be taken")
                    return _refreshed(channel, there, changes, bad)
                commit = self.runtime.commit_insert(_request(execution, history, manifests, changes))
        except BaseException as error:
            self.runtime.staging.undo(execution, error)
            raise
        return _refreshed(channel, there, changes, bad, commit.numbers.get(channel.name))

    def _external(self, name: str) -> Channel:
        channel = self.runtime.project.channel(name)
        if channel.external is None:
            raise DefinitionError(
                f"channel {name!r} is not external",
                expected=", ".join(c.name for c in self.channels) or "(the project has none that is)",
            )
        return channel

    def _there(self, channel: Channel) -> Found:
        """What its location holds."""
        location = self._location(channel)
        return found(channel, location, self.engine.look(location), self._expected(channel))

    def _location(self, channel: Channel) -> str:
        assert channel.external is not None
        given = channel.external.location
        if "://" in given:
            return given.rstrip("/")
        return str((self.root / Path(given).expanduser()).absolute())

    def _expected(self, channel: Channel) -> frozenset[str] | None:
        """The partitions that there should be, where a head before its statement says so."""
        for query in queries_of(self.runtime.project).values():
            view = query.graph.views.get(channel.name)
            if view is not None and view.head is not None:
                return frozenset(query.graph.partitions(channel.name, self.catalog.now()).names)
        return None

    def _known(self, history: History) -> dict[str, str]:
        """Partition -> the version that is committed of it."""
        bases = modes.snapshot(history, history.head).bases
        outside = {b.partition: b.manifest.outside for b in bases if isinstance(b, Block)}
        return {p: o.version for p, o in outside.items() if o is not None}

    def _described(
        self, channel: Channel, history: History, changed: Mapping[str, Content]
    ) -> tuple[dict[str, Manifest], dict[str, str]]:
        """What is to be committed of partitions; and what is wrong with those of which nothing is."""
        assert channel.external is not None
        schema = history.schema or channel.schema
        assert schema is not None
        location, columns = self._location(channel), set[str]()
        manifests: dict[str, Manifest] = {}
        bad: dict[str, str] = {}
        for partition, content in changed.items():
            try:
                of = self.engine.described(channel, partition, content.files)
            except NovaError as error:
                bad[partition] = str(error)
                continue
            columns |= of.columns
            manifests[partition] = Manifest(
                of.files, schema, format=channel.external.format, outside=Outside(location, content.version)
            )
        if manifests and history.head == 0:
            _refuse_absent(channel, columns)
        return manifests, bad


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


def _request(execution: Execution, history: History, manifests: Mapping[str, Manifest], changes: News) -> CommitRequest:
    channel = history.channel
    like = next(iter(manifests.values()), None)
    schema = like.schema if like is not None else history.schema
    assert schema is not None  # something was there, or is
    nothing = Manifest((), schema)

    def published() -> Iterator[Publish]:
        for partition, manifest in manifests.items():
            yield Publish(uuid.uuid4().hex, channel, "base", manifest, history.merge, partition, "insert")
        for partition in changes.gone:
            yield Publish(uuid.uuid4().hex, channel, "base", nothing, history.merge, partition, "drop")

    return CommitRequest(
        id=uuid.uuid4().hex,
        execution_id=execution.id,
        epoch=execution.epoch,
        binding=None,
        publish=tuple(published()),
        heads=(HeadAt(channel, history.head),),
        details={"refreshed": len(manifests), "gone": len(changes.gone)},
    )


def _refreshed(
    channel: Channel, there: Found, changes: News, bad: Mapping[str, str] | None = None, seq: int | None = None
) -> Refreshed:
    found = Refreshed(channel.name, tuple(changes.changed), changes.gone, changes.held, there.unfinished, there.ignored)
    return replace(found, bad=dict(bad or {}), same=changes.same, seq=seq)
