"""Plain DDL is read without sqlglot, as sqlglot reads it."""

from __future__ import annotations

import random
import re

import pytest
from sqlglot.dialects.spark import Spark

from nova_assets.errors import DefinitionError
from nova_assets.model import schema
from nova_assets.model.schema import Schema, parse_ddl

KEYWORDS = {word.lower() for word in Spark.Tokenizer.KEYWORDS if word.isidentifier()}
NAMES = ["id", "B", "_c", "`52 week low`", "`f``g`", "é", "1x", "constraint", "primary", "like", "unique", "comment"]
TYPES = [
    *("boolean", "BIGINT", "int", "double", "string", "date", "timestamp", "timestamp_ntz", "binary", "float"),
    *("decimal(10,2)", "Decimal(38, 0)", "decimal(3,5)", "decimal(0,0)", "decimal(5)", "decimal", "long", "varchar(3)"),
    *("array<int>", "struct<a:int>", "intt"),
]


def texts() -> list[str]:
    rng = random.Random(1)
    columns = [
        [
            f"{rng.choice(NAMES)}{rng.choice([' ', '  ', chr(9), ': '])}{rng.choice(TYPES)}"
            f"{rng.choice(['', '', ' NOT NULL', ' not  null', ' null', ' COMMENT x'])}"
            for _ in range(rng.randint(1, 3))
        ]
        for _ in range(400)
    ]
    of_keywords = [f"a int, {word} string not null" for word in sorted(KEYWORDS)]
    return [*(rng.choice([",", ", ", " ,\n"]).join(c) + rng.choice(["", "", " ", ","]) for c in columns), *of_keywords]


def read(text: str) -> Schema | str:
    parse_ddl.cache_clear()
    try:
        return parse_ddl(text)
    except DefinitionError as error:
        return re.sub(r"\s+", " ", str(error))


def test_both_readers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    every_text = texts()
    plain = [text for text in every_text if schema._read_plain_columns(text) is not None]
    assert 150 < len(plain) < len(every_text) - 150
    results = {text: read(text) for text in every_text}
    monkeypatch.setattr(schema, "_read_plain_columns", lambda text: None)
    assert {text: read(text) for text in every_text} == results
