"""Files of Spark: Parquet and ORC in each codec and type, and Avro of Java's own library, which Spark ships."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets_tests.foreign_files.foreign_file import ForeignFile, Rows, rows_of_arrow
from nova_assets_tests.foreign_files.orc_and_avro_files import read_fastavro
from nova_assets_tests.foreign_files.parquet_files import NOT_SUPPORTED, ROWS

MIXED = (
    "id, CAST(IF(id % 5 = 2, NULL, 'name ' || id % 9) AS STRING) AS name, id / 3.0D AS f, CAST(id / 4 AS FLOAT) AS g, "
    "id % 3 = 0 AS b, CAST(id / 4 AS DECIMAL(10, 2)) AS d, DATE'2024-01-01' + CAST(id AS INT) AS day, "
    "timestamp_seconds(1704067200 + id) AS at, array(id, NULL) AS l, named_struct('x', id, 'y', 'q') AS s, "
    "map('k', id) AS m, CAST('bytes' AS BINARY) AS raw"
)

TYPES: Mapping[str, tuple[str, str | None]] = {
    "tinyint": ("-128Y", None),
    "smallint": ("-3S", None),
    "int": ("7", None),
    "bigint": ("9223372036854775807L", None),
    "float": ("CAST('NaN' AS FLOAT)", None),
    "double": ("-0.0D", None),
    "boolean": ("true", None),
    "string": ("'é'", None),
    "binary": ("X'00FF'", None),
    "decimal(5,2)": ("CAST(1.25 AS DECIMAL(5, 2))", None),
    "decimal(18,3)": ("CAST(1.125 AS DECIMAL(18, 3))", None),
    "decimal(38,10)": ("CAST('-12345678901234567890.0123456789' AS DECIMAL(38, 10))", None),
    "date": ("DATE'1582-10-15'", None),
    "timestamp": ("TIMESTAMP'2024-01-31 12:00:00.000007'", None),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2024-01-31 12:00:00.000007'", None),
    "array": ("array(1, NULL)", None),
    "array of arrays": ("array(array(1), NULL, array())", None),
    "map": ("map('a', array(1))", None),
    "struct": ("named_struct('a', 1, 'b', array('x'))", None),
    "interval day": ("INTERVAL '1' DAY", NOT_SUPPORTED),
    "interval month": ("INTERVAL '1' MONTH", NOT_SUPPORTED),
    "variant": ("parse_json('{\"a\": 1}')", NOT_SUPPORTED),
}
JULIAN = "'v'.* Julian calendar"


def spark_files(spark: Any) -> Iterator[ForeignFile]:
    frame = spark.range(0, ROWS, 1, 1).selectExpr(*_expressions(MIXED))
    for codec in ("none", "snappy", "gzip", "lz4_raw", "zstd"):
        for version in ("v1", "v2"):
            yield _spark_file(spark, "parquet", f"{codec} {version}", frame, compression=codec,
                              **{"parquet.writer.version": version})  # fmt: skip
    layouts: dict[str, dict[str, str]] = {
        "without dictionaries": {"parquet.enable.dictionary": "false"},
        "v2 without dictionaries": {"parquet.enable.dictionary": "false", "parquet.writer.version": "v2"},
        "small pages": {"parquet.page.row.count.limit": "7"},
        "no checksums": {"parquet.page.write-checksum.enabled": "false", "compression": "none"},
        "bloom filters": {"parquet.bloom.filter.enabled#id": "true"},
    }
    for feature, options in layouts.items():
        yield _spark_file(spark, "parquet", feature, frame, **options)
    for type_ in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"):
        settings = {"spark.sql.parquet.outputTimestampType": type_}
        yield _spark_file(spark, "parquet", f"times as {type_}", frame.select("id", "at"), settings)
    yield _spark_file(spark, "parquet", "legacy", frame, {"spark.sql.parquet.writeLegacyFormat": "true"})
    old = {
        name: spark.range(0, 1, 1, 1).selectExpr(f"{value} AS v")
        for name, value in (("date", "DATE'1500-02-28'"), ("time", "TIMESTAMP'1890-01-01 00:00:00'"))
    }
    for name, values in old.items():
        yield _spark_file(spark, "parquet", f"old {name}", values)
        settings = {
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        }
        yield _spark_file(spark, "parquet", f"old {name} of Spark 2", values, settings, JULIAN)
    yield _spark_file(spark, "orc", "old date", old["date"], None, JULIAN)
    yield _spark_file(spark, "orc", "old time", old["time"])
    for codec in ("none", "snappy", "zlib", "zstd", "lz4", "lzo"):
        yield _spark_file(spark, "orc", codec, frame, compression=codec)
    for name, (expression, refusal) in TYPES.items():
        typed = spark.range(0, 1, 1, 1).selectExpr(f"{expression} AS v").unionByName(
            spark.range(0, 1, 1, 1).selectExpr(f"IF(false, {expression}, NULL) AS v")
        ).coalesce(1)  # fmt: skip
        yield _spark_file(spark, "parquet", f"type {name}", typed, None, refusal)
        if name != "variant":  # which Spark does not write into ORC
            yield _spark_file(spark, "orc", f"type {name}", typed, None, refusal)
    if hasattr(spark, "_jvm"):  # not with Spark Connect
        yield from _java_avro_files(spark)


def _expressions(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _spark_file(
    spark: Any,
    format_: str,
    feature: str,
    frame: Any,
    settings: dict[str, str] | None = None,
    refusal: str | None = None,
    **options: Any,
) -> ForeignFile:
    def write(path: Path) -> None:
        folder = path.with_suffix(".folder")
        with temporary_settings(spark, settings or {}):
            frame.coalesce(1).write.format(format_).options(**options).save(str(folder))
        [part] = folder.glob(f"part-*.{format_}")
        part.rename(path)

    def read(path: Path) -> Rows:
        # Spark skips a sum file of its own, and no file is older than its folder.
        reader = spark.read.format(format_).option("parquet.page.verify-checksum.enabled", "true")
        return rows_of_arrow(reader.load(str(path)).toArrow())

    return ForeignFile(f"Spark {format_} {feature}", f".{format_}", write, read, None, refusal)


# Avro of Java's library

_AVRO_SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "f", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
    ],
}


def _java_avro_files(spark: Any) -> Iterator[ForeignFile]:
    rows: Rows = [
        {"id": n, "name": None if n % 5 == 2 else f"n{n % 9}", "f": n / 4, "b": n % 3 == 0, "tags": ["a"] * (n % 3),
         "m": {"k": n}}
        for n in range(ROWS)
    ]  # fmt: skip
    avro = spark._jvm.org.apache.avro
    schema = avro.Schema.Parser().parse(
        json.dumps(_AVRO_SCHEMA), spark.sparkContext._gateway.new_array(spark._jvm.String, 0)
    )

    def file_of(codec: str, interval: int) -> ForeignFile:
        def write(path: Path) -> None:
            reader = avro.generic.GenericDatumReader(schema)
            writer = avro.file.DataFileWriter(avro.generic.GenericDatumWriter(schema))
            writer.setCodec(avro.file.CodecFactory.fromString(codec))
            writer.setSyncInterval(interval)
            writer.create(schema, spark._jvm.java.io.File(str(path)))
            for row in rows:
                named = {**row, "name": None if row["name"] is None else {"string": row["name"]}}
                writer.append(reader.read(None, avro.io.DecoderFactory.get().jsonDecoder(schema, json.dumps(named))))
            writer.close()

        def read(path: Path) -> Rows:
            reader = avro.file.DataFileReader(spark._jvm.java.io.File(str(path)), avro.generic.GenericDatumReader())
            result: Rows = []
            while reader.hasNext():
                result.append(json.loads(reader.next().toString()))
            return result

        # Of a byte that is no boolean, Java's library reads false, and fastavro true.
        name = f"Java's Avro {codec}, blocks of {interval}"
        return ForeignFile(name, ".avro", write, read, rows, other_reader=read_fastavro)

    for codec in ("null", "deflate", "snappy", "bzip2", "xz", "zstandard"):
        for interval in (64_000, 200):
            yield file_of(codec, interval)
