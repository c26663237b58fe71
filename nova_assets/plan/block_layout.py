"""How a channel's blocks are laid out, and into how many buckets. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nova_assets.model.block import Block
from nova_assets.model.block_layout import HASHED_TYPES, Layout, Ranged
from nova_assets.model.channel import Channel
from nova_assets.model.merge import COMBINERS, Custom, Keyed, MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.reads import Chain, Diff, Snapshot, sources
from nova_assets.model.schema import DataType, Schema
from nova_assets.plan.merge_units import touched

COMPARED_TYPES = HASHED_TYPES | {"float", "double", "decimal"}
"""Types whose values Arrow puts into Spark's order, as long as NaN is looked after."""


def layout_of(channel: Channel, schema: Schema) -> Layout | None:
    """How blocks of a channel are laid out now; None for those that are not: without a key, or one whose values Arrow
    and Spark do not put into the same order."""
    model = channel.merge
    if not model.keyed or isinstance(model, Custom):
        return None
    if any(k not in schema or schema.field(k).type.name not in HASHED_TYPES for k in model.key):
        return None
    rest = tuple(k for k in model.key if k not in channel.cluster_by)
    order = (*channel.cluster_by, *rest)
    return Layout(order, tuple(str(schema.field(k).type) for k in order), bool(channel.cluster_by))


@dataclass(frozen=True, slots=True)
class Laid:
    """How all blocks of a read are laid out, and what they have in common.

    Args:
        model: under which they were written.
        schema: of the rows that are read.
    """

    layout: Layout
    model: MergeModel
    schema: Schema


def laid(read: Snapshot | Chain | Diff) -> Laid | None:
    """What is needed to put the blocks of a read together bucket by bucket; None where that cannot be done: one is laid
    out otherwise, of another model, or has values that only Spark can combine or compare."""
    blocks = [s for s in sources(read) if isinstance(s, Block)]
    full = [b for b in blocks if b.manifest.files]
    schema = read.new.schema or read.old.schema if isinstance(read, Diff) else read.schema
    if schema is None or not full or len(blocks) < len(sources(read)):
        return None
    layout, model = full[-1].manifest.layout, blocks[-1].merge
    if layout is None or not folds(model, schema) or (isinstance(read, Diff) and not compares(schema)):
        return None
    if any(c not in schema for c in layout.order) or set(layout.order) != set(model.key):
        return None
    if any(f.partition not in (WHOLE, b.partition) for b in full for f in b.manifest.files):
        return None  # not taken apart by partition
    here = tuple(str(schema.field(c).type) for c in layout.order) == layout.types
    alike = all(b.merge.as_json() == model.as_json() and b.manifest.format == "parquet" for b in blocks)
    return Laid(layout, model, schema) if here and alike and all(b.manifest.layout == layout for b in full) else None


def apart(read: Snapshot) -> tuple[Snapshot, Snapshot]:
    """A snapshot in two: the files of its bases that no delta changes, and the rest with the deltas on top.

    Where blocks are laid out alike and keys come in ranges, most of a big table is in the first, and is read bare.
    """
    how = laid(read)
    bases = [b for b in read.bases if isinstance(b, Block)]
    if how is None or not bases or not read.deltas:
        return replace(read, bases=(), deltas=()), read
    found: set[str] = set()
    for partition in {b.partition for b in bases}:
        mine, deltas = (
            [b for b in some if isinstance(b, Block) and b.partition == partition] for some in (bases, read.deltas)
        )
        found |= touched(mine, deltas, how.layout)

    def some(of: bool) -> tuple[Block, ...]:
        kept = ((b, tuple(f for f in b.manifest.files if (f.path in found) == of)) for b in bases)
        return tuple(replace(b, manifest=replace(b.manifest, files=files)) for b, files in kept if files)

    return replace(read, bases=some(False), deltas=()), replace(read, bases=some(True))


def changed_range(read: Snapshot) -> tuple[str, Any, Any] | None:
    """Within what values of its first column all keys lie that deltas change, as JSON has them; None where keys do not
    come in ranges."""
    how = laid(read)
    if how is None or not how.layout.clustered:
        return None
    places = [f.place for d in read.deltas if isinstance(d, Block) for f in d.manifest.files]
    known = [p for p in places if isinstance(p, Ranged)]
    if not known or len(known) < len(places):
        return None
    return how.layout.order[0], min(p.least for p in known)[0], max(p.greatest for p in known)[0]


def folds(model: MergeModel, schema: Schema) -> bool:
    """Whether changes under a model can be composed outside Spark; functions of the user's are of Spark's columns."""
    if isinstance(model, Custom) or not model.keyed:
        return False
    combined = model.combine if isinstance(model, Keyed) else ()
    ordered = [*model.order_by, *(c for c, f in combined if f in ("min", "max"))]
    known = all(f in COMBINERS for _, f in combined)
    return known and all(c in schema and schema.field(c).type.name in COMPARED_TYPES for c in ordered)


def compares(schema: Schema) -> bool:
    """Whether rows of a schema can be told apart outside Spark: Arrow compares no lists and no maps."""
    return all(_compared(f.type) for f in schema.fields)


def _compared(type_: DataType) -> bool:
    if type_.name == "struct":
        return all(_compared(f.type) for f in type_.fields)
    return type_.name in COMPARED_TYPES
