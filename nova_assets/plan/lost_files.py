"""Files that are missing or changed: which answers are lost with them, and which blocks nobody misses. Pure.

What a lost block means is decided by the functions that answer reads and that collect (``plan/modes``,
``plan/collect``), on the history without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nova_assets.model.block import Block
from nova_assets.model.damage import Damage
from nova_assets.model.maintenance import Facts
from nova_assets.model.merge import Append
from nova_assets.model.partitions import within
from nova_assets.model.timeline import History, Track
from nova_assets.plan.garbage_collection import NEWEST, answers
from nova_assets.plan.modes import answered, effective

Wrong = Mapping[str, str]
"""Path of a listed file that is not as it was written -> what is wrong with it."""

_NAMED = 3
"""Files that are named one by one."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is damaged of one partition of a channel.

    Args:
        blocks: with a file that is missing or changed.
        missed: for whom a retained answer is lost.
        versions: numbers of the partition that can no longer be answered.
        whole: its numbers that still can.
    """

    track: Track
    blocks: tuple[Block, ...]
    missed: tuple[str, ...]
    versions: tuple[int, ...]
    whole: frozenset[int]

    def holds_at(self, at: int) -> bool:
        """Whether what was in the partition at a version of the channel can still be told."""
        return effective(self.track.numbers, at) in self.whole


def given_up(facts: Facts, damaged: frozenset[str]) -> tuple[Block, ...]:
    """The damaged blocks that nobody misses: of a partition all or none, so that no way back is closed while another
    is open only in the catalog."""
    return tuple(b for loss in losses(facts, damaged) if not loss.missed for b in loss.blocks)


def losses(facts: Facts, damaged: frozenset[str]) -> tuple[Loss, ...]:
    """What damaged blocks mean, for each partition that has some."""
    found = []
    for track in facts.history.tracks:
        bad = tuple(b for b in track.blocks if b.id in damaged)
        if bad:
            of = replace(facts, history=facts.history.only({track.partition}))
            rest = without(of.history, bad)
            missed = tuple(Counter(answers(of)) - Counter(answers(replace(of, history=rest))))
            whole = answered(rest.tracks[0])
            found.append(Loss(track, bad, missed, tuple(sorted(answered(track) - whole)), whole))
    return tuple(found)


def without(history: History, blocks: Sequence[Block]) -> History:
    """The history as if blocks had been collected: what they changed stays known as numbers."""
    gone = {b.id for b in blocks}
    numbers = {p: set(n) for p, n in history.numbers.items()}
    for b in blocks:
        of = numbers.setdefault(b.partition, set())
        of |= {b.hi} if b.origin != "compact" else set()
    left = tuple(b for b in history.blocks if b.id not in gone)
    return replace(history, blocks=left, numbers={p: tuple(sorted(n)) for p, n in numbers.items()})


def newest_whole(facts: Facts, found: Sequence[Loss]) -> int:
    """The newest version of the channel that can be answered; 0 where there is none but the empty one."""
    others = [
        (t.numbers, answered(t))
        for t in facts.history.tracks
        if all(t.partition != loss.track.partition for loss in found)
    ]
    at = facts.history.head
    while at > 0:
        if all(loss.holds_at(at) for loss in found) and all(effective(n, at) in whole for n, whole in others):
            return at
        at -= 1
    return 0


def lost_files(facts: Facts, wrong: Wrong, readers: Sequence[str] = (), writer: str | None = None) -> list[Damage]:
    """What to say of a channel's files, for each partition concerned.

    Args:
        readers: bindings that read the channel.
        writer: the binding that writes it as a base.
    """
    damaged = frozenset(b.id for b in facts.history.blocks if any(f.path in wrong for f in b.manifest.files))
    found = losses(facts, damaged)
    return [
        _lost(facts, loss, wrong, readers, writer, found) if loss.missed else _mendable(facts, loss, wrong)
        for loss in found
    ]


def _mendable(facts: Facts, loss: Loss, wrong: Wrong) -> Damage:
    named = ", ".join(b.range for b in loss.blocks)
    gone = f"; {_versions(loss.versions)}, which nobody has asked to keep, cannot be read" if loss.versions else ""
    return Damage(
        "file",
        _subject(facts, loss),
        _what(facts, loss, wrong),
        f"every answer that is kept is possible without {named}{gone}",
        "give up",
        f"{named} is given up: marked as collected, so that nothing is planned with it",
        concerns=tuple(b.id for b in loss.blocks),
    )


def _lost(
    facts: Facts, loss: Loss, wrong: Wrong, readers: Sequence[str], writer: str | None, found: Sequence[Loss]
) -> Damage:
    head_lost = NEWEST in loss.missed
    means = [f"{_versions(loss.versions)} of {_where(facts, loss)} cannot be answered"] if loss.versions else []
    means += [f"missed by {'; '.join(loss.missed)}"]
    means += [f"read by {', '.join(readers)}"] if head_lost and readers else []
    return Damage(
        "file",
        _subject(facts, loss),
        _what(facts, loss, wrong),
        "; ".join(means),
        next=_advice(facts, loss, writer, newest_whole(facts, found)),
        concerns=tuple(f.path for b in loss.blocks for f in b.manifest.files if f.path in wrong),
    )


def _advice(facts: Facts, loss: Loss, writer: str | None, at: int) -> str:
    """What to type. A base on top takes effect at once, unless it must first be compared with what is lost."""
    channel, said = facts.history.channel, ["put the files back from a backup"]
    head_lost, consumers = NEWEST in loss.missed, [r for r in facts.readers if r.cursor > 0]
    compared = bool(consumers) and (isinstance(facts.history.merge, Append) or not facts.bases)
    if not head_lost and all(why.startswith("time travel") for why in loss.missed):
        return said[0]
    if head_lost and compared:
        return f"{said[0]}: a base would have to be compared with them, for the sake of {consumers[0].who}"
    if writer is not None:
        said.append(f"nova run {writer}, which writes it whole")
    if at > 0:
        after = "" if at == facts.history.head else ", without what came after it"
        said.append(f"nova restore {channel} --at {at}: a base of the newest version that is whole{after}")
    else:
        said.append(f"nova insert {channel} FILE --kind base")
    stuck = [r.who for r in consumers if within(loss.track.partition, r.scope) and not loss.holds_at(r.cursor)]
    only = f" ({', '.join(stuck)} can go on only with the files)" if stuck else ""
    return "; or ".join(said) + only


def _what(facts: Facts, loss: Loss, wrong: Wrong) -> str:
    bad = list(dict.fromkeys(f.path for b in loss.blocks for f in b.manifest.files if f.path in wrong))
    said = [f"{path} {wrong[path]}" for path in bad[:_NAMED]]
    said += [f"and {len(bad) - _NAMED} more"] if len(bad) > _NAMED else []
    return f"{', '.join(b.range for b in loss.blocks)} of {_where(facts, loss)}: {'; '.join(said)}"


def _versions(numbers: Sequence[int]) -> str:
    """``version 3``, ``versions 3 to 5, 9``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    shown = ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
    return f"version{'s' if len(numbers) > 1 else ''} {shown}"


def _where(facts: Facts, loss: Loss) -> str:
    return facts.history.channel + (f" in {loss.track.partition}" if loss.track.partition else "")


def _subject(facts: Facts, loss: Loss) -> str:
    return f"{facts.history.channel} {loss.track.partition}".rstrip()
