"""A table of others in an object store: what is there is found by Arrow alone. Spark reads it in ``test_spark.py``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.errors import SourceUnavailable
from nova_assets.store.store import Store

pytestmark = pytest.mark.slow

VIEW = (
    "CREATE EXTERNAL TABLE tickets (product STRING, price BIGINT, day STRING) USING parquet PARTITIONED BY (day)\n"
    "LOCATION 's3://theirs/shop/tickets' TBLPROPERTIES('done' = '_SUCCESS')"
)


@pytest.fixture
def theirs(s3: Any) -> Any:
    s3.create_bucket(Bucket="theirs")
    return s3


@pytest.fixture
def store(theirs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tickets.sql").write_text(VIEW)
    with nova.open(nova.Project(nova.datasets(tmp_path))) as made:
        yield made


def put(client: Any, day: str, *prices: int, name: str = "a.parquet", done: bool = True) -> None:
    data = io.BytesIO()
    pq.write_table(pa.table({"product": ["pen"] * len(prices), "price": list(prices)}), data)
    client.put_object(Bucket="theirs", Key=f"shop/tickets/day={day}/{name}", Body=data.getvalue())
    if done:
        client.put_object(Bucket="theirs", Key=f"shop/tickets/day={day}/_SUCCESS", Body=b"")


def keys(client: Any) -> list[str]:
    return sorted(o["Key"] for o in client.list_objects_v2(Bucket="theirs").get("Contents", []))


def there(store: Store) -> dict[str, list[str]]:
    """Day -> the files that stand for it now."""
    blocks = {b.partition: b for b in store.catalog.histories.of("tickets").blocks}  # the latest of each
    return {
        p[4:]: sorted(f.path.rsplit("/", 1)[1] for f in b.manifest.files) for p, b in blocks.items() if b.manifest.files
    }


def test_a_table_in_a_bucket_is_followed_and_never_touched(store: Store, theirs: Any) -> None:
    put(theirs, "2022-03-30", 1, 2)
    put(theirs, "2022-03-31", 3, done=False)
    before = keys(theirs)
    assert store.refresh("tickets").seq is not None
    assert there(store) == {"2022-03-30": ["a.parquet"]}, "a day is there when its writer says so"
    assert store.refresh("tickets").seq is None
    put(theirs, "2022-03-31", 4, name="b.parquet")
    put(theirs, "2022-03-30", 5, name="late.parquet")
    assert store.refresh("tickets").seq is not None
    both = ["a.parquet", "b.parquet"]
    assert there(store) == {"2022-03-30": ["a.parquet", "late.parquet"], "2022-03-31": both}
    theirs.delete_object(Bucket="theirs", Key="shop/tickets/day=2022-03-31/b.parquet")
    store.refresh("tickets")
    assert there(store) == {"2022-03-30": ["a.parquet", "late.parquet"], "2022-03-31": ["a.parquet"]}
    assert set(before) <= set(keys(theirs)), "nothing of theirs was taken away"


def test_a_bucket_that_is_gone_changes_nothing(store: Store, theirs: Any) -> None:
    put(theirs, "2022-03-30", 1)
    store.refresh("tickets")
    head = store.catalog.definitions.channel("tickets").head
    for key in keys(theirs):
        theirs.delete_object(Bucket="theirs", Key=key)
    theirs.delete_bucket(Bucket="theirs")
    with pytest.raises(SourceUnavailable, match="s3://theirs/shop/tickets"):
        store.refresh("tickets")
    assert store.catalog.definitions.channel("tickets").head == head
