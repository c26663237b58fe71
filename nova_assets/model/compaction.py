"""Thresholds for the automatic compaction of a channel."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a partition gets a new base (R14).

    A partition is compacted once readers have paid more for merging since its newest base than a new base costs, and in
    any case at these limits.

    Args:
        deltas: number of deltas since the newest base at which the partition is compacted. Beside a large base the
            deltas are chained into fewer; otherwise they are merged into a new base. No chain crosses the cursor of a
            consumer, so more deltas may remain if several consumers lag behind.
        share: size of these deltas relative to the base, in bytes, at which a new base is always written. At 0.02 a
            full read costs up to about twice a bare scan (``benchmarks/upkeep``). Choose a larger share for a channel
            that is written often and seldom read as a whole: each new base costs some scans.
        small: size in bytes below which a file or base counts as small: rewriting it costs next to nothing.
        target: target file size in bytes for an append-only channel. Small files are merged into files of up to this
            size, which are then left unchanged.
    """

    __repr__ = short_repr

    deltas: int = 16
    share: float = 0.02
    small: int = 32 * 1024 * 1024
    target: int = 128 * 1024 * 1024

    def problems(self) -> list[str]:
        """Problems of these limits."""
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
