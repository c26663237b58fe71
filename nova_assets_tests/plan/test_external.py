"""What has become of a table that another system keeps, by its files alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.errors import DefinitionError, PartitionError
from nova_assets.model.external_table import External
from nova_assets.model.file_source import ExternalFileInfo, ExternalFolder, is_external_path
from nova_assets.plan.external_changes import (
    MAX_GONE_PARTITIONS,
    detect_changes,
    group_files_by_partition,
    partition_of_folder,
)

HERE = "/data/tickets"


def tickets(*, done: str | None = None, schema: str = "price int, day string, store string") -> nova.Channel:
    return nova.Channel(
        "tickets",
        schema=schema,
        partitions=[nova.daily("day", start="2022-03-01"), nova.dynamic("store")],
        external=nova.external(HERE, success_file=done),
    )


def seen(*paths: str, size: int = 10, changed: int = 1) -> list[ExternalFileInfo]:
    return [ExternalFileInfo(f"{HERE}/{p}", size, changed) for p in paths]


DAY, OTHER = "day=2022-03-30/store=Paris", "day=2022-03-31/store=Paris"


def test_partitions_are_folders() -> None:
    there = group_files_by_partition(tickets(), HERE, seen(f"{DAY}/a.parquet", f"{DAY}/b.parquet", f"{OTHER}/000000_0"))
    assert {p: len(c.files) for p, c in there.partitions.items()} == {DAY: 2, OTHER: 1}
    assert not there.ignored and not there.unfinished


@pytest.mark.parametrize(
    "path",
    [
        f"{DAY}/_SUCCESS",
        f"{DAY}/.part-0.parquet.crc",
        f"{DAY}/_temporary/0/part-0.parquet",
        f"{DAY}/part-0.parquet._COPYING_",
        "_spark_metadata/0",
    ],
)
def test_what_is_hidden_is_no_data(path: str) -> None:
    there = group_files_by_partition(tickets(), HERE, seen(path))
    assert not there.partitions and not there.ignored


def test_an_empty_file_is_no_data() -> None:
    assert not group_files_by_partition(tickets(), HERE, seen(f"{DAY}/a.parquet", size=0)).partitions


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a.parquet", "the folder name does not have the form day=.../store=..."),
        ("day=2022-03-30/a.parquet", "the folder name does not have the form day=.../store=..."),
        ("day=2022-03-30/Paris/a.parquet", "folder 'Paris' names no value of a partition column"),
        (f"{DAY}/hour=1/a.parquet", "the folder name does not have the form day=.../store=..."),
        (f"{DAY}/store=Oslo/a.parquet", "the folder name does not have the form day=.../store=..."),
        ("day=20220330/store=Paris/a.parquet", "day=20220330 must be written day=2022-03-30"),
        ("day=2021-03-30/store=Paris/a.parquet", "daily partitions of 'day' have no '"),
        ("day=today/store=Paris/a.parquet", "daily partitions of 'day' have no '"),
    ],
)
def test_what_is_no_partition_is_said(path: str, why: str) -> None:
    there = group_files_by_partition(tickets(), HERE, seen(path))
    [said] = there.ignored.values()
    assert why in said
    assert not there.partitions


def test_values_are_what_hive_says() -> None:
    assert partition_of_folder(tickets(), "store=a%3Ab/DAY=2022-03-30") == "day=2022-03-30/store=a:b"
    assert partition_of_folder(tickets(), "day=2022-03-30/store=__HIVE_DEFAULT_PARTITION__") == (
        "day=2022-03-30/store=__null__"
    )
    of_numbers = tickets(schema="price int, day string, store int")
    assert partition_of_folder(of_numbers, "day=2022-03-30/store=007") == "day=2022-03-30/store=7"
    with pytest.raises(PartitionError, match="'Paris' is not a valid int"):
        partition_of_folder(of_numbers, DAY)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("tinyint", "300"),
        ("int", "1_000"),
        ("int", " 5"),
        ("int", "\u0665"),
        ("bigint", str(2**63)),
        ("string", ""),
        ("date", "unknown"),
        ("date", "20220330"),
        ("boolean", "maybe"),
        ("string", "S%C3%A3o"),
        ("string", "%E9"),
    ],
)
def test_values_that_spark_would_take_for_others_are_none(kind: str, value: str) -> None:
    channel = nova.Channel(
        "there", schema=f"v int, p {kind}", partitions=nova.dynamic("p"), external=nova.external(HERE)
    )
    there = group_files_by_partition(channel, HERE, seen(f"p={value}/a.parquet"))
    assert not there.partitions and list(there.ignored) == [f"p={value}"]


def test_a_partition_is_complete_when_its_writer_says_so() -> None:
    there = group_files_by_partition(
        tickets(done="_SUCCESS"), HERE, seen(f"{DAY}/a.parquet", f"{DAY}/_SUCCESS", f"{OTHER}/a.parquet")
    )
    assert list(there.partitions) == [DAY] and there.unfinished == (OTHER,)
    assert detect_changes(there, {OTHER: "as it was"}).gone == (), "it is being written again"
    plain = group_files_by_partition(
        tickets(done="DONE"), HERE, seen(f"{DAY}/a.parquet", f"{DAY}/DONE", f"{OTHER}/DONE")
    )
    assert {p: len(c.files) for p, c in plain.partitions.items()} == {DAY: 1, OTHER: 0}, "complete, and empty"


def test_partitions_that_there_should_not_be_are_left_alone() -> None:
    there = group_files_by_partition(
        tickets(), HERE, seen(f"{DAY}/a.parquet", f"{OTHER}/a.parquet"), expected_partitions=[OTHER]
    )
    assert list(there.partitions) == [OTHER] and there.unexpected == {DAY}
    assert detect_changes(there, {DAY: "of the days before"}).gone == ()


def test_what_is_otherwise_since() -> None:
    before = group_files_by_partition(tickets(), HERE, seen(f"{DAY}/a.parquet", f"{OTHER}/a.parquet"))
    known = {p: c.version for p, c in before.partitions.items()}
    assert detect_changes(before, known).unchanged_count == 2 and not detect_changes(before, known).changed
    touched = group_files_by_partition(
        tickets(), HERE, [*seen(f"{DAY}/a.parquet", changed=2), *seen(f"{OTHER}/a.parquet")]
    )
    assert list(detect_changes(touched, known).changed) == [DAY], "written anew, of the same size"
    more = group_files_by_partition(tickets(), HERE, seen(f"{DAY}/a.parquet", f"{DAY}/b.parquet"))
    assert (list(detect_changes(more, known).changed), detect_changes(more, known).gone) == ([DAY], (OTHER,))
    retyped = group_files_by_partition(
        tickets(schema="price bigint, day string, store string"), HERE, seen(f"{DAY}/a.parquet")
    )
    assert list(detect_changes(retyped, known).changed) == [DAY], "its columns are others"


def test_much_that_is_gone_at_once_is_held() -> None:
    known = {f"day=2022-03-{n:02d}/store=Paris": "v" for n in range(1, MAX_GONE_PARTITIONS + 2)}
    nothing = group_files_by_partition(tickets(), HERE, [])
    assert (
        detect_changes(nothing, known).gone == ()
        and len(detect_changes(nothing, known).unconfirmed_gone) == MAX_GONE_PARTITIONS + 1
    )
    assert len(detect_changes(nothing, known, allow_gone=True).gone) == MAX_GONE_PARTITIONS + 1
    few = dict(list(known.items())[:MAX_GONE_PARTITIONS])
    assert len(detect_changes(nothing, few).gone) == MAX_GONE_PARTITIONS


@given(st.lists(st.tuples(st.sampled_from([DAY, OTHER]), st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 3))))
@settings(deadline=None)
def test_a_version_is_another_when_and_only_when_the_files_are(given: list[tuple[str, str, int, int]]) -> None:
    files = {(p, n): ExternalFileInfo(f"{HERE}/{p}/{n}", size, changed) for p, n, size, changed in given}
    before = group_files_by_partition(tickets(), HERE, list(files.values()))
    again = group_files_by_partition(tickets(), HERE, list(reversed(files.values())))
    assert before == again
    for key, file in files.items():
        others = [f for k, f in files.items() if k != key]
        for changed in (others, [*others, ExternalFileInfo(file.path, file.bytes, file.modified_ns + 1)]):
            after = group_files_by_partition(tickets(), HERE, changed)
            known = {p: c.version for p, c in before.partitions.items()}
            told = detect_changes(after, known, allow_gone=True)
            assert {*told.changed, *told.gone} == {key[0]}


def test_definitions_that_mean_nothing_are_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        nova.Channel(
            "tickets",
            merge=nova.Upsert(key="id"),
            external=External("gs://bucket/x", "csv", "a/b"),  # type: ignore[arg-type]
            source=nova.files("landing"),
            partitions=nova.daily("day", start="2022-03-01", keep="30d"),
        )
    said = str(caught.value)
    for what in (
        "external has location='gs://bucket/x'; expected a folder, s3://BUCKET/PREFIX or hdfs://NAMENODE:PORT/PATH",
        "external has format='csv'; expected parquet or orc (to ingest files of other formats: source=nova.files",
        "external has success_file='a/b'; expected the name of a file, such as _SUCCESS",
        "an external channel needs a schema",
        "an external channel has no merge model; leave merge= out",
        "source= has no effect on an external channel",
        "partition column 'day' has keep='30d', but another system drops partitions",
    ):
        assert what in said


def test_tasks_neither_write_nor_follow_it() -> None:
    channel = tickets()

    @nova.task(consumes=nova.new(channel), produces=nova.delta(nova.Channel("sold", schema="price int")))
    def follow(tickets: object) -> object: ...

    @nova.task(produces=nova.base(channel))
    def write() -> object: ...

    with pytest.raises(DefinitionError) as caught:
        nova.Project([nova.bind(nova.Workflowette("follow", [follow])), nova.bind(nova.Workflowette("write", [write]))])
    assert "consumes new(tickets), but channel 'tickets' is external and has no changes to read" in str(caught.value)
    assert "task 'write' writes channel 'tickets', which is external: another system writes it" in str(caught.value)


def test_its_definition_comes_back_from_the_catalog() -> None:
    channel = tickets(done="_SUCCESS")
    assert nova.Channel.from_json(channel.as_json()) == channel
    assert nova.Channel.from_json(channel.as_json()) != tickets()


def test_files_are_held_to_their_location() -> None:
    outside = ExternalFolder(HERE, "v")
    assert (
        outside.contains(f"{HERE}/a")
        and not outside.contains("/data/other/a")
        and not outside.contains(f"{HERE}/../other/a")
    )
    assert is_external_path(f"{HERE}/a") and is_external_path("s3://b/a") and not is_external_path("blocks/1/a.parquet")


@pytest.mark.parametrize(
    "location", ["", "file:///data/x", "s3://", "s3:///x", "hdfs://", "gs://b/x", "s3://bucket/../other"]
)
def test_locations_that_are_none(location: str) -> None:
    with pytest.raises(DefinitionError, match="external has location="):
        nova.Channel("there", schema="v int", external=nova.external(location))


def test_hours_of_another_zone_are_read_as_texts_only() -> None:
    hours = nova.hourly("h", start="2022-03-01T00:00", tz="Europe/Paris")
    with pytest.raises(
        DefinitionError, match="'h' is a timestamp in Europe/Paris, and Spark reads the folders' names in"
    ):
        nova.Channel("there", schema="v int, h timestamp", partitions=hours, external=nova.external(HERE))
    nova.Channel("there", schema="v int, h string", partitions=hours, external=nova.external(HERE))
