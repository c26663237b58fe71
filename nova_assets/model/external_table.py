"""Files that another system makes, and that are read where they are: views of its tables (BigDataFlow, part 2).

Nothing of them is copied, and nothing here ever writes, drops or deletes one. What the catalog knows is which files
there were when it last looked; each look commits a base of the partitions whose files are others since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from nova_assets.model.type_checks import check_argument_types
from nova_assets.short_repr import short_repr

if TYPE_CHECKING:
    from nova_assets.model.block import DataFile

Form = Literal["parquet", "orc"]


@dataclass(frozen=True, slots=True)
class External:
    """Where another system keeps a table.

    Args:
        location: a folder, from the project's root; ``s3://BUCKET/PREFIX``, or ``hdfs://NAMENODE:PORT/PATH``. Its
            partitions are folders in it, ``day=2022-03-31/store=Paris``, as Hive and Spark write them.
        format: of all files.
        success_file: a file, such as ``_SUCCESS``, without which a partition's folder is not complete, and not looked
            at. Without one, a folder is read as it is: its writer should put it there whole.
        expected: gives the partitions that there should be, as of a moment, where the dimensions do not say it all.
    """

    __repr__ = short_repr

    location: str
    format: Form = "parquet"
    success_file: str | None = None
    expected: Callable[[datetime], Iterable[str]] | None = field(default=None, compare=False, repr=False)

    def problems(self) -> list[str]:
        """What is wrong with it."""
        found = []
        scheme, _, rest = self.location.partition("://")
        remote = bool(rest) and scheme in ("s3", "hdfs") and not rest.startswith("/") and ".." not in rest.split("/")
        if not self.location or ("://" in self.location and not remote):
            found.append(
                f"external has location={self.location!r}; expected a folder, s3://BUCKET/PREFIX or "
                "hdfs://NAMENODE:PORT/PATH"
            )
        if self.format not in get_args(Form):
            known = " or ".join(get_args(Form))
            found.append(
                f"external has format={self.format!r}; expected {known} (rows of other files are taken in by "
                "source=nova.files(...))"
            )
        if self.success_file is not None and (not self.success_file or "/" in self.success_file):
            found.append(
                f"external has success_file={self.success_file!r}; expected the name of a file, such as _SUCCESS"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "location": self.location,
            "format": self.format,
            **({"done": self.success_file} if self.success_file else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> External:
        return External(data["location"], data["format"], data.get("done"))


@check_argument_types("nova.external")
def external(location: str, *, format: Form = "parquet", success_file: str | None = None) -> External:
    """A table that another system keeps, to be read where it is.

        tickets = nova.Channel("tickets", schema="product_id string, day string, store string",
                               partitions=[nova.dynamic("day"), nova.dynamic("store")],
                               external=nova.external("/data/tickets", success_file="_SUCCESS"))

    In a folder of datasets the same is ``CREATE EXTERNAL TABLE tickets (...) USING parquet ... LOCATION '...'``.

    See ``External`` for what the arguments mean.
    """
    return External(location, format, success_file)


@dataclass(frozen=True)
class Refreshed:
    """What a look at an external channel has found.

    Args:
        changed: partitions whose files are others than were known; all of them committed, but for ``bad``.
        gone: partitions of which nothing is there any more.
        held: such partitions that are so many that somebody has to say so; they are as they were.
        unfinished: partitions that are not complete; they are as they were.
        ignored: folders that are no partition of the channel, and why.
        beyond: partitions that are there, and that there should not be.
        bad: partitions with a file that is not as the channel says, and what is wrong; they are as they were.
        same: so many partitions are as they were.
        seq: the number that the changes took; None where there were none, or nothing was to be changed.
        error: why nothing could be found out; None where it could.
    """

    __repr__ = short_repr

    channel: str
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()
    bad: Mapping[str, str] = field(default_factory=dict)
    same: int = 0
    seq: int | None = None
    error: str | None = None

    @property
    def needs_attention(self) -> bool:
        """Whether somebody should look at it."""
        return self.error is not None or bool(self.bad) or bool(self.held)

    @property
    def describe_problems(self) -> str:
        """What is amiss, in a line."""
        if self.error is not None:
            return f"{self.channel} cannot be looked at: {self.error}"
        bad = [f"{p or 'the whole'}: {why}" for p, why in self.bad.items()]
        held = [f"{len(self.held)} partitions are gone at once, and left as they were"] if self.held else []
        return f"{self.channel}: " + "; ".join([*bad, *held])


@dataclass(frozen=True)
class ExternalFilesContent:
    """Files, with what they hold.

    Args:
        files: with their rows.
        columns: that some of them have, in small letters.
    """

    files: tuple[DataFile, ...]
    columns: frozenset[str]
