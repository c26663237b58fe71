"""Options of a single block: its merge model and its file format (Nova 3.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from nova_assets.errors import DefinitionError
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key
from nova_assets.model.merge import Append, Custom, MergeModel, Multiset, Upsert
from nova_assets.model.schema import DataType

if TYPE_CHECKING:
    from nova_assets.model.channel import Channel

BlockFormat = Literal["parquet", "orc", "avro", "csv", "json"]
"""File formats of blocks. ``json`` is one object per line."""

BLOCK_FORMATS: tuple[str, ...] = get_args(BlockFormat)


MergeName = Literal["append", "multiset", "upsert"]
"""Names of merge models that need nothing but the key of their channel."""


@dataclass(frozen=True, slots=True)
class BlockOptions(JsonForm):
    """How one block is merged and stored, if that differs from the other blocks of its channel.

    Args:
        merge: merge model of the block; None for the model of the channel.
        format: file format of the block; None for the format of the engine.
        kept_files: files that become the files of the block as they are, with their numbers of rows; empty if the
            engine writes the files.
    """

    merge: MergeModel | None = field(default=None, metadata=json_key(omit_default=True))
    format: BlockFormat | None = field(default=None, metadata=json_key(omit_default=True))
    kept_files: tuple[tuple[str, int], ...] = field(default=(), metadata=NOT_IN_JSON)

    def problems(self, channel: Channel, kind: str) -> list[str]:
        """Problems of these options for a block of a channel."""
        found = [] if self.merge is None else block_merge_problems(channel, kind, self.merge)
        return found if self.format is None else found + block_format_problems(channel, self.format)

    def check(self, channel: Channel, kind: str) -> None:
        """Raise DefinitionError if the options have no clear meaning for a block of the channel."""
        problems = self.problems(channel, kind)
        if problems:
            raise DefinitionError(
                f"a block of channel {channel.name!r} cannot have these options: {'; '.join(problems)}",
                found=str(self),
                expected="see docs/guides/blocks.md",
                channel=channel.name,
                problems=problems,
            )

    def own_merge(self, channel_merge: MergeModel) -> MergeModel | None:
        """Merge model of the block, if the channel has another model."""
        return None if self.merge is None or self.merge.as_json() == channel_merge.as_json() else self.merge

    def __str__(self) -> str:
        """The given options, such as ``merge=Upsert(key='id'), format='orc'``; empty if none is given."""
        return ", ".join(f"{k}={v!r}" for k, v in self._given().items())

    def _given(self) -> dict[str, Any]:
        return {k: v for k, v in (("merge", self.merge), ("format", self.format)) if v is not None}


NO_OPTIONS = BlockOptions()


def options_from_arguments(merge: Any, format: Any, kept_files: tuple[tuple[str, int], ...] = ()) -> BlockOptions:
    """Options from a user's arguments. Raises DefinitionError for values of another type."""
    if merge is not None and not isinstance(merge, MergeModel):
        raise DefinitionError(
            "merge= of a block is no merge model", found=repr(merge), expected="for example nova.Upsert(key='id')"
        )
    if format is not None and format not in BLOCK_FORMATS:
        raise DefinitionError(
            f"a block cannot have format={format!r}", expected=f"one of {', '.join(BLOCK_FORMATS)}", found=repr(format)
        )
    return BlockOptions(merge, format, kept_files)


def merge_model_by_name(channel: Channel, name: MergeName | None, key: Sequence[str] = ()) -> MergeModel | None:
    """Merge model with a name, for a block of a channel; None without a name.

    Args:
        key: key of an ``upsert``. By default, the key of the channel.

    Raises:
        DefinitionError: an ``upsert`` has no key, or a key is given for another model.
    """
    if name != "upsert":
        if key:
            raise DefinitionError(f"only merge=upsert has a merge_key, not merge={name}", found=", ".join(key))
        return None if name is None else Append() if name == "append" else Multiset()
    if not key and not channel.merge.key:
        raise DefinitionError(
            f"a block with merge 'upsert' needs a key, and channel {channel.name!r} has none",
            expected="append or multiset",
            channel=channel.name,
        )
    return Upsert(tuple(key) or channel.merge.key)


def name_of_merge_model(merge: MergeModel) -> MergeName | None:
    """Name of a merge model that ``merge_model_by_name`` gives back; None if it has more than a key."""
    names: dict[type[MergeModel], MergeName] = {Append: "append", Multiset: "multiset", Upsert: "upsert"}
    name = names.get(type(merge))
    return name if name != "upsert" or merge.as_json() == Upsert(merge.key).as_json() else None


def block_merge_problems(channel: Channel, kind: str, merge: MergeModel) -> list[str]:
    """Problems of a merge model for one block of a channel.

    All blocks of a channel are merged one after the other, so the rows that one model leaves must be rows that the
    other model can merge.
    """
    if kind != "delta":
        return [
            "merge= belongs to a delta: a base is not merged, and a new model of the channel takes effect with a base"
        ]
    if channel.external is not None:
        return ["the channel is written by another system"]
    if not _can_follow(channel.merge, merge):
        return [
            f"merge={merge!r} cannot be combined with the channel's merge={channel.merge!r}: {_expected(channel.merge)}"
        ]
    return merge.problems(channel.schema)


def _can_follow(channel_merge: MergeModel, merge: MergeModel) -> bool:
    if isinstance(channel_merge, Custom) or isinstance(merge, Custom):
        return isinstance(channel_merge, Custom) and isinstance(merge, Custom)
    if isinstance(channel_merge, Multiset):
        return isinstance(merge, Append | Multiset)
    if not channel_merge.key:
        return isinstance(merge, Append)
    return set(merge.key) == set(channel_merge.key)


def _expected(channel_merge: MergeModel) -> str:
    if isinstance(channel_merge, Custom):
        return "expected a Custom model"
    if isinstance(channel_merge, Multiset):
        return "expected Append() or Multiset()"
    if not channel_merge.key:
        return "its consumers read changes without deletions, so expected Append()"
    return f"expected Upsert or Keyed with the key {', '.join(channel_merge.key)}"


def block_format_problems(channel: Channel, format: str) -> list[str]:
    """Problems of a file format for a block of a channel."""
    if channel.external is not None:
        return ["the channel is written by another system"]
    fields = () if channel.schema is None else channel.schema.fields
    return [p for f in fields if (p := type_problem(format, f.name, f.type)) is not None]


def type_problem(format: str, column: str, type_: DataType) -> str | None:
    """Why a format cannot hold a column; None if it can."""
    if format == "csv" and type_.fields:
        return f"column {column!r} is {type_}, and CSV has no nested types"
    if format != "avro":
        return None
    if not _AVRO_NAME.fullmatch(column):
        return f"column {column!r} has a name that Avro does not allow"
    if type_.name == "map" and type_.fields[0].type.name != "string":
        return f"column {column!r} is {type_}, and keys of Avro's maps are text"
    inner = type_.fields[1:] if type_.name == "map" else type_.fields
    named = type_.name == "struct"
    problems = (type_problem(format, f.name if named else "item", f.type) for f in inner)
    return next((p for p in problems if p is not None), None)


_AVRO_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def has_same_effect(merge: MergeModel, channel_merge: MergeModel) -> bool:
    """Whether a delta under one model has the same effect under the channel's model: its rows are the channel's
    change.
    """
    return isinstance(merge, Append) and isinstance(channel_merge, Append | Multiset)
