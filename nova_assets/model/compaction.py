"""When a channel is compacted by itself."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a partition of a channel is worth a new base (R14): when what readers have paid for merging since the last
    one exceeds what it costs, and in any case at the limits given here.

    Args:
        deltas: when a partition has so many since its newest base, they are chained into fewer beside a large base,
            and otherwise merged into a new one. No chain leads across a consumer's cursor, so where several lag
            behind there may be more.
        share: a new base always when these deltas hold so much of what the base does, in bytes. A reading of the whole
            costs up to about twice a bare scan at 0.02 (``benchmarks/upkeep``). More where the channel is written often
            and seldom read whole: each new base costs some scans.
        small: bytes below which a file, or a base, counts as small: to write it again costs next to nothing.
        target: bytes of a file of the size wanted, on a channel that is only added to: small files are rolled into
            larger ones up to there, and are then left as they are.
    """

    __repr__ = short_repr

    deltas: int = 16
    share: float = 0.02
    small: int = 32 * 1024 * 1024
    target: int = 128 * 1024 * 1024

    def problems(self) -> list[str]:
        """What is wrong with these limits."""
        return [
            f"compaction has {name}={value!r}; expected {expected}"
            for name, value, expected, is_valid in (
                ("deltas", self.deltas, "a number, from 1", self.deltas >= 1),
                ("share", self.share, "a share above 0", self.share > 0),
                ("small", self.small, "bytes, from 0", self.small >= 0),
                ("target", self.target, "bytes, from 1", self.target >= 1),
            )
            if not is_valid
        ]
