"""Projects: all bindings of a deployment, validated together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from nova_assets.errors import BindingNotFound, ChannelNotFound, DefinitionError
from nova_assets.model.argument_checks import check_argument_types
from nova_assets.model.binding import Binding
from nova_assets.model.channel import Channel
from nova_assets.model.channel_checks import channel_check_problems, name_channels, with_channel_checks
from nova_assets.model.data_check import Check
from nova_assets.model.names import find_duplicates
from nova_assets.model.quarantine import quarantine_channel
from nova_assets.model.trigger import After, OnData, OnSealed, Trigger
from nova_assets.short_repr import short_repr
from nova_assets.suggestions import did_you_mean, format_valid_names


@dataclass(frozen=True, init=False)
class Project:
    """All bindings and channels that share a catalog.

    Each definition validates itself when it is created. The project validates the relations between definitions and
    reports all problems at once.

    Args:
        bindings: all bindings of the project. The result of ``nova.datasets`` also adds the channels of external
            tables.
        channels: further channels, which no binding names. The project adds a quarantine channel for each channel with
            a source.
        checks: checks of channels. Whoever writes a channel has to pass its checks: a binding, an asset, a dataset, an
            insert, or arrived files. The first edge of a check names the channel under test.

    Raises:
        DefinitionError: a definition is invalid (R5, R8). The error lists all problems of all definitions.
    """

    __repr__ = short_repr

    bindings: tuple[Binding, ...]
    channels: tuple[Channel, ...]
    checks: tuple[Check, ...]

    @check_argument_types(
        "nova.Project",
        bindings="nova.bind(workflowette)",
        channels="nova.Channel(name)",
        checks="nova.checks.not_null(channel, column)",
    )
    def __init__(
        self, bindings: Sequence[Binding] = (), channels: Sequence[Channel] = (), checks: Sequence[Check] = ()
    ) -> None:
        named = [c for b in bindings for c in b.channels.values() if isinstance(c, Channel)]
        named += [e.channel for c in checks for e in c.consumes if e.channel is not None]
        dataset_channels = getattr(bindings, "channels", ())  # `nova.datasets` gives these: channels of external tables
        channels_without_quarantine = list(dict.fromkeys([*channels, *dataset_channels, *named]))
        channel_by_name = {c.name: c for c in channels_without_quarantine}
        # Checks belong to the project, not to nova.Channel(...): a check names columns of its channel, which does not
        # exist yet at that place, and a check of two channels would make their definitions depend on each other.
        object.__setattr__(self, "checks", tuple(name_channels(c, channel_by_name) for c in checks))
        completed = (b.completed(channel_by_name) for b in bindings)
        object.__setattr__(self, "bindings", tuple(with_channel_checks(b, self._sound_checks()) for b in completed))
        quarantines = [quarantine_channel(c) for c in channels_without_quarantine if c.source is not None]
        object.__setattr__(self, "channels", tuple(dict.fromkeys([*channels_without_quarantine, *quarantines])))
        problems = self._problems()
        if problems:
            raise DefinitionError.of(list(dict.fromkeys(problems)), "the project is not sound")

    def binding(self, name: str) -> Binding:
        """Binding with this name. Raises BindingNotFound."""
        if name in self._bindings_by_name:
            return self._bindings_by_name[name]
        names = [b.name for b in self.bindings]
        raise BindingNotFound(
            f"no binding is called {name!r}{did_you_mean(name, names)}",
            expected=format_valid_names(names, "(the project has none)"),
            binding=name,
        )

    def channel(self, name: str) -> Channel:
        """Channel with this name. Raises ChannelNotFound."""
        if name in self._channels_by_name:
            return self._channels_by_name[name]
        names = [c.name for c in self.channels]
        raise ChannelNotFound(
            f"no channel is called {name!r}{did_you_mean(name, names)}",
            expected=format_valid_names(names, "(the project has none)"),
            channel=name,
        )

    def writer(self, channel: str) -> Binding | None:
        """Binding that writes the channel. None if the channel gets its data from outside. Two bindings never write the
        same channel.
        """
        return self._writers_by_channel.get(channel)

    def checks_of(self, channel: str) -> tuple[Check, ...]:
        """Checks that the project gives to a channel."""
        return tuple(c for c in self.checks if c.consumes and c.port == channel)

    def _sound_checks(self) -> list[Check]:
        """Checks whose edges all name channels. The other checks are problems."""
        return [c for c in self.checks if c.consumes and all(e.channel is not None for e in c.consumes)]

    @cached_property
    def _bindings_by_name(self) -> dict[str, Binding]:
        return {b.name: b for b in self.bindings}

    @cached_property
    def _channels_by_name(self) -> dict[str, Channel]:
        return {c.name: c for c in self.channels}

    @cached_property
    def _writers_by_channel(self) -> dict[str, Binding]:
        return {c.name: b for b in self.bindings for c in b.writes}

    def _problems(self) -> list[str]:
        found = [p for b in self.bindings for p in b.problems()]
        known = {c.name: c for c in self.channels}
        found += [p for c in self.checks for p in channel_check_problems(c, known)]
        return (
            found + self._name_problems() + self._writer_problems() + self._trigger_problems() + self._cycle_problems()
        )

    def _name_problems(self) -> list[str]:
        found = [
            f"two bindings are called {n!r}; give one a name=" for n in find_duplicates(b.name for b in self.bindings)
        ]
        found += [f"two different channels are called {n!r}" for n in find_duplicates(c.name for c in self.channels)]
        tables = (t.id for c in self.channels for t in c.publish)
        return found + [f"two channels are published in {t}" for t in find_duplicates(tables)]

    def _writer_problems(self) -> list[str]:
        writers: dict[str, list[str]] = {}
        for b in self.bindings:
            for c in b.writes:
                writers.setdefault(c.name, []).append(b.name)
        source_channels = {c.name for c in self.channels if c.source is not None}
        quarantining_channels = {
            c.name for c in self.channels if c.seal is not None and c.seal.late == "quarantine"
        } - source_channels
        return (
            [
                f"channel {c!r} is written by the bindings {' and '.join(map(repr, w))}; one binding writes a channel"
                for c, w in writers.items()
                if len(w) > 1
            ]
            + [
                f"channel {c!r} has a source, so binding {w[0]!r} must not write it"
                for c, w in writers.items()
                if c in source_channels
            ]
            + [
                f"channel {c!r} is written by the binding {w[0]!r}, but late='quarantine' in its seal needs a source"
                for c, w in writers.items()
                if c in quarantining_channels
            ]
        )

    def _trigger_problems(self) -> list[str]:
        found = []
        channels, bindings = {c.name for c in self.channels}, {b.name for b in self.bindings}
        sealed = {c.name for c in self.channels if c.seal is not None}
        for b in self.bindings:
            for leaf in b.triggers:
                if isinstance(leaf, OnData):
                    found += [
                        f"binding {b.name!r}: on_data names {c!r}, which is no channel of the project"
                        + did_you_mean(c, channels)
                        for c in leaf.channels
                        if c not in channels
                    ]
                if isinstance(leaf, OnSealed) and leaf.channel not in sealed:
                    found.append(f"binding {b.name!r}: on_sealed names {leaf.channel!r}, which has no seal=")
                if isinstance(leaf, After) and leaf.binding not in bindings:
                    found.append(
                        f"binding {b.name!r}: after names {leaf.binding!r}, which is no binding of the project"
                        + did_you_mean(leaf.binding, bindings)
                    )
        return found

    def _cycle_problems(self) -> list[str]:
        """Problems if the lineage between bindings is not a DAG.

        Inside one binding a cycle is allowed: a task may read the channel that it writes.
        """
        writers = {c.name: b.name for b in self.bindings for c in b.writes}
        graph = {
            b.name: {writers[c.name] for c in b.reads if writers.get(c.name, b.name) != b.name} for b in self.bindings
        }
        cycle = _describe_cycle(graph)
        return [f"the bindings form a cycle: {cycle}"] if cycle else self._trigger_cycle_problems(writers)

    def _trigger_cycle_problems(self, writers: Mapping[str, str]) -> list[str]:
        """Problems if bindings trigger each other in a cycle: such triggers would fire for ever."""
        graph = {b.name: {f for leaf in b.triggers for f in _triggering_bindings(leaf, writers)} for b in self.bindings}
        cycle = _describe_cycle(graph)
        if not cycle:
            return []
        return [f"the triggers form an endless cycle: {cycle}; if this is intended, set loop=True on one of them"]


def _triggering_bindings(trigger: Trigger, writer_by_channel: Mapping[str, str]) -> set[str]:
    """Bindings whose executions may fire a simple trigger."""
    if isinstance(trigger, After) and not trigger.loop:
        return {trigger.binding}
    if isinstance(trigger, OnData) and not trigger.loop:
        return {writer_by_channel[c] for c in trigger.channels if c in writer_by_channel}
    return set()


def _describe_cycle(sources_by_name: Mapping[str, set[str]]) -> str:
    """Text of one cycle, in order of execution; empty if the graph has no cycle."""
    for name, sources in sources_by_name.items():
        if name in sources:  # TopologicalSorter ignores self-loops
            return f"{name} → {name}"
    try:
        TopologicalSorter(sources_by_name).prepare()
    except CycleError as error:
        return " → ".join(error.args[1])
    return ""
