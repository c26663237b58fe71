"""How a channel's blocks are laid out, and into how many buckets. Pure."""

from __future__ import annotations

from decimal import Decimal

from nova_assets.model.channel import Channel
from nova_assets.model.layout import HASHED_TYPES, Key, Layout
from nova_assets.model.merge import Custom
from nova_assets.model.schema import Schema
from nova_assets.plan.cells import Ranking

BUCKET_BYTES = 32 * 2**20
"""Of a bucket on disk: so small that several cores have some, and each fits into memory several times."""

LARGEST_BYTES = 256 * 2**20
"""Of a bucket of a table so large that its buckets would be too many otherwise."""

MANY_BUCKETS = 1024


def layout_of(channel: Channel, schema: Schema) -> Layout | None:
    """How blocks of a channel are laid out now; None for those that are not: without a key, or one whose values Arrow
    and Spark do not put into the same order."""
    model = channel.merge
    if not model.keyed or isinstance(model, Custom):
        return None
    if any(k not in schema or schema.field(k).type.name not in HASHED_TYPES for k in model.key):
        return None
    rest = tuple(k for k in model.key if k not in channel.cluster_by)
    return Layout((*channel.cluster_by, *rest), bool(channel.cluster_by))


def bucket_bytes(total: int) -> int:
    """What a bucket of a partition of this size should hold, in bytes on disk."""
    return max(BUCKET_BYTES, min(LARGEST_BYTES, total // MANY_BUCKETS))


def buckets_for(total: int) -> int:
    """Into how many buckets a partition of this size is laid out: a power of two."""
    least = -(-total // bucket_bytes(total))
    return 1 << max(0, (least - 1).bit_length())


def ranking_of(layout: Layout, schema: Schema) -> Ranking:
    """What orders as the keys of a layout do, of keys as JSON has them. Dates and times in ISO form order as they
    are."""
    decimals = [schema.field(c).type.name == "decimal" for c in layout.order]

    def rank(key: Key) -> tuple[object, ...]:
        return tuple(Decimal(v) if decimal else v for v, decimal in zip(key, decimals, strict=True))

    return rank
