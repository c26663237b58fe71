"""For users' own tests: a deployment in a temporary folder, and checks of the laws that models and tasks have to
keep."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nova_assets.model.binding import Binding
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.merge import MergeModel
from nova_assets.model.project import Project
from nova_assets.model.schema import DELETED
from nova_assets.opening import open as open_store
from nova_assets.store import Store

Rows = list[dict[str, Any]]


class World:
    """A deployment of its own: catalog and warehouse in a temporary folder that goes when the ``with`` block ends.

    Args:
        project: bindings and channels, or None.
        spark: a session to use; by default the local one of this process, which stays warm between worlds.
    """

    def __init__(self, project: Project | None = None, spark: Any = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nova-world-")
        root = Path(self._folder.name)
        self.store: Store = open_store(project, f"sqlite:///{root / 'catalog.db'}", root / "warehouse", spark)
        if project is not None:
            self.store.register(project)

    def __enter__(self) -> Store:
        return self.store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        self._folder.cleanup()


def check_laws(model: MergeModel, frames: Sequence[Any], schema: Any = None, spark: Any = None) -> None:
    """Try the laws of R10 on a merge model, with real blocks: one base and then deltas.

    Args:
        model: the merge model.
        frames: a base and two or more deltas, as ``store.insert`` takes them.
        schema: of the channel, where the frames do not tell.

    Raises:
        AssertionError: naming the law and the rows that differ.
    """
    if len(frames) < 3:
        raise ValueError("check_laws needs a base and two or more deltas")
    channel = Channel("laws", merge=model, schema=schema)
    other = Channel("again", merge=model, schema=schema)
    with World(spark=spark) as store:
        store.register([channel, other])
        store.insert("laws", frames[0], kind="base")
        for delta in frames[1:]:
            store.insert("laws", delta)
        head = len(frames)
        snapshots = [rows_of(store, "laws", at=n) for n in range(head + 1)]
        for start in range(1, head):
            for end in range(start + 1, head + 1):
                store.insert("again", snapshot_frame(store, "laws", start), kind="base")
                store.insert("again", store.read("laws", since=start, at=end).to_arrow())
                law = f"merge(B{start}, chain of the deltas to {end}) = B{end}"
                _same(rows_of(store, "again"), snapshots[end], law)
        for start in range(1, head + 1):
            store.insert("again", snapshot_frame(store, "laws", start), kind="base")
            before = store.catalog.channel("again").head
            store.insert("again", snapshot_frame(store, "laws", head), kind="base")
            change = store.read("again", since=before).to_arrow()
            store.insert("again", snapshot_frame(store, "laws", start), kind="base")
            store.insert("again", change)
            _same(rows_of(store, "again"), snapshots[head], f"merge(B{start}, diff(B{start}, B{head})) = B{head}")


def check_incremental(
    binding: Binding, inputs: Mapping[str, Sequence[Any]], spark: Any = None, kind: Kind = "delta"
) -> None:
    """Whether a binding is incremental-safe on these inputs (R12): batch by batch gives what all at once gives.

    Args:
        binding: what is run.
        inputs: channel -> its batches, in the order of arrival.

    Raises:
        AssertionError: naming the channel and the rows that differ.
    """
    project = Project([binding])
    outputs = [c.name for c in binding.writes]
    batches = max(len(b) for b in inputs.values())

    def run(each_time: Callable[[int], bool]) -> dict[str, Rows]:
        with World(project, spark) as store:
            for n in range(batches):
                for channel, given in inputs.items():
                    if n < len(given):
                        store.insert(channel, given[n], kind=kind)
                if each_time(n):
                    store.run(binding.name)
            return {c: rows_of(store, c) for c in outputs}

    stepwise, at_once = run(lambda n: True), run(lambda n: n == batches - 1)
    for channel in outputs:
        _same(stepwise[channel], at_once[channel], f"channel {channel!r} batch by batch = all at once (R12)")


def rows_of(store: Store, channel: str, at: int | None = None) -> Rows:
    """A snapshot as sorted rows, comparable with ``==``."""
    table = store.read(channel, at=at).to_arrow()
    rows: Rows = table.to_pylist()
    return sorted(({k: _rounded(v) for k, v in r.items() if k != DELETED} for r in rows), key=repr)


def snapshot_frame(store: Store, channel: str, at: int) -> Any:
    """A snapshot as a frame that can be inserted."""
    return store.read(channel, at=at).to_arrow()


def _rounded(value: Any) -> Any:
    """Floats compare within 1e-9 relative (R12)."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _same(found: Rows, expected: Rows, law: str) -> None:
    if found != expected:
        extra = [r for r in found if r not in expected][:5]
        missing = [r for r in expected if r not in found][:5]
        raise AssertionError(
            f"{law} does not hold: {len(found)} rows, {len(expected)} expected; extra {extra}, missing {missing}"
        )
