"""What was found out of statements before: by their text, and by what is known of all that they read.

Each is looked up by a hash that has in it the hashes of everything that it hangs on, as in a Merkle tree: the text, the
functions, and of each dataset that it reads its columns and partition columns. That one is another only where these
are: a query that is changed so that it gives the same columns leaves those that read it as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlglot import exp

from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema
from nova_assets.sql.calls import tables_of
from nova_assets.sql.dataset import Written, head_from, scopes_of, written
from nova_assets.sql.dialect import parsed
from nova_assets.sql.head import Head
from nova_assets.sql.query import Query, Scan, understood
from nova_assets.sql.shelf import Opened
from nova_assets.sql.text import Text
from nova_assets.sql.trees import packed, unpacked


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
        key = _of_text(text)
        said = self._said(key)
        try:
            return None if said is None else self._written(text, key, **said)
        except (KeyError, TypeError, ValueError):
            return None

    def keep(self, one: Written) -> None:
        """Keep what a statement says."""
        said = {
            "name": one.name,
            "kind": one.kind,
            "scans": [asdict(s) for s in one.scans],
            "calls": one.calls,
            "scopes": one.scopes,
            "begin": one.begin,
            "description": one.description,
            "owner": one.owner,
        }
        self.shelf.put(_of_text(one.text), said, packed(scopes_of(one)))

    def _written(self, text: Text, key: bytes, *, scans: Sequence[Mapping[str, Any]], **said: Any) -> Written:
        places = tuple(Scan(**{**s, "place": tuple(s["place"])}) for s in scans)
        return Written(
            text=text, scans=places, **said, parse=partial(parsed, text), think=partial(self._head, text, key)
        )

    def _head(self, text: Text, key: bytes) -> Head:
        tree = self.shelf.shelf.tree(key)
        try:
            return written(text).head if tree is None else head_from(text, unpacked(tree))
        except ValueError:
            return written(text).head

    def understood(
        self, one: Written, schemas: Mapping[str, Schema], partitions: Mapping[str, Sequence[str]]
    ) -> Understood | None:
        """What a dataset comes to; None where it is not known."""
        key = self._key(one, schemas, partitions)
        said = None if key is None else self._said(key)
        try:
            found = None if key is None or said is None else self._understood(one, key, schemas, **said)
        except (KeyError, TypeError, ValueError):
            return None
        self.hits += found is not None
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
            self.shelf.put(key, said, packed(query.tree))

    def _understood(
        self,
        one: Written,
        key: bytes,
        schemas: Mapping[str, Schema],
        *,
        schema: list[dict[str, Any]],
        dimensions: list[dict[str, Any]],
        **said: Any,
    ) -> Understood:
        known = {r: schemas[r] for r in one.reads}
        return Understood(
            Schema.from_json(schema),
            tuple(Dimension(**{**d, "values": tuple(d["values"])}) for d in dimensions),
            partial(self._query, one, key, known, **said),
        )

    def _query(
        self,
        one: Written,
        key: bytes,
        schemas: Mapping[str, Schema],
        *,
        variables: Mapping[str, str],
        names: Sequence[str],
        bare: Sequence[tuple[Sequence[int], str]],
    ) -> Query:
        packed_tree = self.shelf.shelf.tree(key)
        try:
            tree = None if packed_tree is None else unpacked(packed_tree)
        except ValueError:
            tree = None
        if not isinstance(tree, exp.Query):
            return understood(one.text, one.query, schemas, one.head.variable_types, tables_of(self.functions))
        places = tuple(((begin, end), name) for (begin, end), name in bare)
        return Query(one.text, tree, one.scans, variables, tuple(names), places)

    def _key(
        self, one: Written, schemas: Mapping[str, Schema], partitions: Mapping[str, Sequence[str]]
    ) -> bytes | None:
        """None where it cannot be kept: functions that stand as tables are asked what they are called with."""
        if one.calls or not all(r in schemas for r in one.reads):
            return None
        faces = [f"{r} {self._face(r, schemas[r], partitions.get(r, ()))}" for r in one.reads]
        return _hash("dataset", _of_text(one.text).hex(), self._functions, *faces)

    def _face(self, name: str, schema: Schema, columns: Sequence[str]) -> str:
        """What others see of a dataset, which is one and the same as long as this is used."""
        if name not in self._faces:
            self._faces[name] = _hash(str(schema), *columns).hex()
        return self._faces[name]

    def _said(self, key: bytes) -> dict[str, Any] | None:
        said = self.shelf.said(key)
        return said if isinstance(said, dict) else None


def _of_text(text: Text) -> bytes:
    """The name of the file is that of the dataset, where it says no other."""
    return _hash("text", Path(text.name).stem, text.sql)


def _hash(*parts: str) -> bytes:
    made = sha256(_readers())
    for part in parts:
        made.update(b"%d:" % len(part.encode()) + part.encode())
    return made.digest()


@cache
def _readers() -> bytes:
    """What reads statements: another version of it may find out something else."""
    made = sha256(version("sqlglot").encode())
    package = Path(__file__).parent.parent
    for file in (*sorted((package / "sql").glob("*.py")), package / "model" / "schema.py"):
        made.update(file.read_bytes())
    return made.digest()
