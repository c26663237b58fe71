"""What was found out of statements before: by their text, and by what is known of all that they read.

Each is looked up by a hash that has in it the hashes of everything that it hangs on, as in a Merkle tree: the text, the
functions, and of each dataset that it reads its columns and partition columns. That one is another only where these
are: a query that is changed so that it gives the same columns leaves those that read it as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from sqlglot import exp

from nova_assets.errors import NovaError
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema
from nova_assets.sql.cache.disk_cache import Opened, Shelf
from nova_assets.sql.parse.dialect import parsed
from nova_assets.sql.parse.tree_encoding import packed, unpacked
from nova_assets.sql.query.query import Query, Scan, understood
from nova_assets.sql.query.table_function_calls import tables_of
from nova_assets.sql.statement.header import Head
from nova_assets.sql.statement.statement import Written, head_from, scopes_of, written
from nova_assets.sql.text import Text

_AMISS = (KeyError, TypeError, ValueError, NovaError)
"""What comes of a record that is not as it was kept."""


@dataclass(frozen=True)
class Understood:
    """What a dataset comes to.

    Args:
        schema: of what it gives, its partition columns last.
        dimensions: how it is partitioned.
        query: gives its query, with every column told.
    """

    schema: Schema
    dimensions: tuple[Dimension, ...]
    query: Callable[[], Query]


class Recall:
    """Looks up what is known of some datasets, and keeps what is found out of others.

    Args:
        shelf: where it is kept.
        functions: of users, with what they give.

    Attributes:
        hits: so many were known.
    """

    def __init__(self, shelf: Opened, functions: Mapping[str, str]) -> None:
        self.shelf = shelf
        self.hits = 0
        self.functions = functions
        self._functions = json.dumps(dict(functions), sort_keys=True)
        self._faces: dict[str, str] = {}

    def written(self, text: Text) -> Written | None:
        """What a statement says; None where it is not known."""
        key = hash_of_text(text)
        said = self._said(key)
        try:
            return None if said is None else _written(self.shelf.shelf, text, key, **said)
        except _AMISS:
            return None

    def keep(self, one: Written) -> None:
        """Keep what a statement says."""
        said = {
            "name": one.name,
            "kind": one.kind,
            "scans": [asdict(s) for s in one.scans],
            "calls": one.calls,
            "named": sorted(one.named),
            "scopes": one.scopes,
            "begin": one.begin,
            "description": one.description,
            "owner": one.owner,
        }
        self._put(hash_of_text(one.text), said, lambda: scopes_of(one))

    def understood(
        self, one: Written, schemas: Mapping[str, Schema], partitions: Mapping[str, Sequence[str]]
    ) -> Understood | None:
        """What a dataset comes to; None where it is not known."""
        key = self._key(one, schemas, partitions)
        said = None if key is None else self._said(key)
        try:
            if key is None or said is None:
                return None
            find = partial(_query, self.shelf.shelf, self.functions, one, key, {r: schemas[r] for r in one.reads})
            found = _understood(find, **said)
        except _AMISS:
            return None
        self.hits += 1
        return found

    def keep_understood(
        self,
        one: Written,
        schemas: Mapping[str, Schema],
        partitions: Mapping[str, Sequence[str]],
        found: Understood,
    ) -> None:
        """Keep what a dataset comes to."""
        key, query = self._key(one, schemas, partitions), found.query()
        if key is not None:
            said = {
                "schema": found.schema.as_json(),
                "dimensions": [asdict(d) for d in found.dimensions],
                "variables": dict(query.variables),
                "names": query.names,
                "bare": query.bare,
            }
            self._put(key, said, lambda: query.tree)

    def _key(
        self, one: Written, schemas: Mapping[str, Schema], partitions: Mapping[str, Sequence[str]]
    ) -> bytes | None:
        """None where it cannot be kept: functions that stand as tables are asked what they are called with."""
        if one.calls or not all(r in schemas for r in one.reads):
            return None
        faces = [f"{r} {self._face(r, schemas[r], partitions.get(r, ()))}" for r in one.reads]
        return hash_of("dataset", hash_of_text(one.text).hex(), self._functions, *faces)

    def _face(self, name: str, schema: Schema, columns: Sequence[str]) -> str:
        """What others see of a dataset, which is one and the same as long as this is used."""
        if name not in self._faces:
            self._faces[name] = hash_of(str(schema), *columns).hex()
        return self._faces[name]

    def _said(self, key: bytes) -> dict[str, Any] | None:
        said = self.shelf.said(key)
        return said if isinstance(said, dict) else None

    def _put(self, key: bytes, said: Mapping[str, Any], tree: Callable[[], exp.Expr]) -> None:
        with suppress(TypeError):  # there is something in it that JSON has not
            self.shelf.put(key, said, packed(tree()))


def _written(shelf: Shelf, text: Text, key: bytes, *, scans: Any, named: Sequence[str], **said: Any) -> Written:
    return Written(
        text=text,
        scans=tuple(Scan(**{**s, "place": tuple(s["place"])}) for s in scans),
        named=frozenset(named),
        **said,
        parse=partial(parsed, text),
        think=partial(_head, shelf, text, key),
    )


def _head(shelf: Shelf, text: Text, key: bytes) -> Head:
    tree = shelf.tree(key)
    try:
        return written(text).head if tree is None else head_from(text, unpacked(tree))
    except ValueError:
        return written(text).head


def _understood(find: Callable[..., Query], *, schema: Any, dimensions: Any, **said: Any) -> Understood:
    return Understood(
        Schema.from_json(schema),
        tuple(Dimension(**{**d, "values": tuple(d["values"])}) for d in dimensions),
        partial(find, **said),
    )


def _query(
    shelf: Shelf,
    functions: Mapping[str, str],
    one: Written,
    key: bytes,
    schemas: Mapping[str, Schema],
    *,
    variables: Mapping[str, str],
    names: Sequence[str],
    bare: Sequence[tuple[Sequence[int], str]],
) -> Query:
    """The query that is kept; understood anew, where it is gone."""
    kept = shelf.tree(key)
    try:
        tree = None if kept is None else unpacked(kept)
    except ValueError:
        tree = None
    if not isinstance(tree, exp.Query):
        return understood(one.text, one.query, schemas, one.head.variable_types, tables_of(functions))
    places = tuple(((begin, end), name) for (begin, end), name in bare)
    return Query(one.text, tree, one.scans, variables, tuple(names), places, schemas=schemas)


def hash_of_text(text: Text) -> bytes:
    """The hash of a statement. The name of the file is that of the dataset, where it says no other."""
    return hash_of("text", Path(text.name).stem, text.sql)


def hash_of(*parts: str) -> bytes:
    """The hash of some texts, and of the code that reads statements."""
    made = sha256(_readers())
    for data in (part.encode("utf-8", "surrogatepass") for part in parts):
        made.update(b"%d:" % len(data) + data)
    return made.digest()


@cache
def _readers() -> bytes:
    """What reads statements: another version of it may find out something else."""
    try:
        made = sha256(version("sqlglot").encode())
    except PackageNotFoundError:  # put there without being installed
        made = sha256()
    for room in ("nova_assets.sql", "nova_assets.model"):
        for file in _files_below(files(room)):
            made.update(file.read_bytes())
    return made.digest()


def _files_below(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _files_below(entry)
        elif entry.name.endswith(".py"):
            yield entry
