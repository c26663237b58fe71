"""Checks of database tables against their sources when definitions load."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nova_assets.errors import DefinitionError, SchemaMismatch
from nova_assets.masking import get_logger
from nova_assets.model.channel import Channel
from nova_assets.store.external_definitions import check_databases

log = get_logger("nova_assets.external")

_checked_definitions: set[str] = set()
"""Definitions that this process has compared. A process loads its definitions many times."""


def check_sources_once(channels: Iterable[Channel], is_refreshed: Callable[[Channel], bool]) -> None:
    """Compare the channels that copy a database with their sources, unless this process did so before.

    A source that does not answer is no error. A contradiction is an error for a new definition. For a definition under
    which the channel was refreshed, the source has changed, and the contradiction is logged: pipelines that do not read
    the channel must go on.

    Args:
        is_refreshed: whether a channel was refreshed under its definition.

    Raises:
        DefinitionError: new definitions contradict their sources. The error lists all contradictions.
    """
    problems: list[str] = []
    silent_databases: set[str] = set()  # each of them costs the time of a connection that nobody answers
    for channel in channels:
        if channel.external is None or channel.external.database is None or _key(channel) in _checked_definitions:
            continue
        url = channel.external.location
        contradictions, unavailable = ([], []) if url in silent_databases else check_databases([channel])
        for error in unavailable:
            silent_databases.add(url)
            log.info("the definition of %s was not compared with its source: %s", channel.name, error.found)
        for contradiction in contradictions:
            if is_refreshed(channel) or not isinstance(contradiction, SchemaMismatch | DefinitionError):
                log.warning("%s", contradiction)
            else:
                problems.append(f"{contradiction.what}: {contradiction.found}")
        if not contradictions and url not in silent_databases:
            _checked_definitions.add(_key(channel))
    if problems:
        raise DefinitionError.of(problems, "the project")


def _key(channel: Channel) -> str:
    return repr(channel.as_json())
