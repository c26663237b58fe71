"""Thresholds for the automatic compaction of a channel."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.short_repr import short_repr


@dataclass(frozen=True, slots=True)
class Compaction:
    """Limits for the compaction of a channel (R14).

    Readers pay for merging the deltas after the newest base of a partition. Once they have paid more than a new base
    costs, the partition is compacted. The arguments are further limits, at which a partition is compacted in any case.

    Args:
        deltas: a partition with this number of deltas since its newest base is compacted. If the base is large, the
            deltas are chained into fewer deltas. Otherwise the deltas are merged into a new base. No chain crosses the
            cursor of a consumer, so more deltas may remain if several consumers lag behind.
        share: for a keyed channel. A new base is always written if the bytes of these deltas exceed this share of the
            bytes of the base. With 0.02, a full read costs up to about twice a bare scan (``benchmarks/upkeep``). Each
            new base costs some scans. So choose a larger share for a channel that is written often and seldom read as a
            whole.
        small: size in bytes. A smaller file or base counts as small, because to rewrite it costs next to nothing.
        target: target file size in bytes, for an append-only channel. Small files are merged into files of up to this
            size. Compaction then leaves the merged files unchanged.
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
