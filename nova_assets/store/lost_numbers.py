"""Sequence numbers of commits that a restored catalog has lost: a request for such a number is refused."""

from __future__ import annotations

from nova_assets.catalog.catalog import Catalog
from nova_assets.errors import VersionNotFound


def check_number_not_lost(catalog: Catalog, channel: str, *numbers: int | None) -> None:
    """Check that no requested number belongs to a commit that a restored catalog has lost.

    Raises:
        VersionNotFound.
    """
    requested = [n for n in numbers if n]
    if not requested:
        return
    for lost in catalog.histories.lost_numbers(channel):
        for number in requested:
            if number in lost:
                raise VersionNotFound(
                    f"channel {channel!r} has lost version {number}: the catalog was restored from a backup",
                    found=number,
                    expected=f"0 to {lost.start - 1}, or {lost.stop} and later",
                    next=f"read the whole channel; nova timeline {channel} shows its versions",
                    channel=channel,
                )
