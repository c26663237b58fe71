"""Whether the next block of a channel has to be a base, because the definition of the channel has changed. Pure."""

from __future__ import annotations

from nova_assets.errors import ModelChanged
from nova_assets.model.block import Kind
from nova_assets.model.merge import Append, Multiset
from nova_assets.model.timeline import History


def has_new_merge_model(history: History) -> bool:
    """Whether the merge model of a channel has changed since its newest block (R18)."""
    return history.last_merge is not None and history.last_merge.as_json() != history.merge.as_json()


def reason_for_base(history: History, *, is_computed_per_partition: bool) -> str:
    """Why the next block has to be a base (R18); empty if a delta is accepted, too.

    Args:
        history: the scope in which an execution writes.
        is_computed_per_partition: whether the first block of each partition is a base, so that a partition without rows
            exists, too.
    """
    if history.next_schema is not None:
        return f"the columns of channel {history.channel} have changed"
    is_other_model = has_new_merge_model(history)
    if is_computed_per_partition and not is_other_model:
        newest_blocks = [b for b in history.blocks if b.hi == history.blocks[-1].hi]
        if not newest_blocks or any(b.origin == "drop" for b in newest_blocks):
            return f"partition {history.scope} does not exist"
        is_other_model = any(b.model_of_channel.as_json() != history.merge.as_json() for b in newest_blocks)
    return f"the merge model of channel {history.channel} has changed" if is_other_model else ""


def check_merge_model_accepts(history: History, kind: Kind) -> None:
    """Check that a channel accepts a block. After a change of its merge model, or of its columns, a base of the whole
    channel must come first (R18, R23). After a change of the model, a base of one partition is enough for a
    ``Multiset``, because any rows are a multiset.

    Raises:
        ModelChanged: no base was committed since the change.
    """
    if kind == "base" and not history.scope:
        return
    if history.next_schema is not None:
        raise ModelChanged(
            f"the columns of channel {history.channel!r} were changed after version {history.head}",
            found="a delta",
            expected="a base, with which the new columns take effect (R23)",
            next="nova tick, which computes the dataset with its new columns",
            channel=history.channel,
        )
    takes_any_rows = isinstance(history.last_merge, Append) and isinstance(history.merge, Multiset)
    if has_new_merge_model(history) and not (kind == "base" and takes_any_rows):
        raise ModelChanged(
            f"the merge model of channel {history.channel!r} was changed after version {history.head}",
            found="a delta" if not history.scope else f"a block for {history.scope} alone",
            expected="a base of the whole channel, with which the new model takes effect (R18)",
            next=f"nova restore {history.channel} --at {history.head}, which writes such a base of the same rows",
            channel=history.channel,
        )
