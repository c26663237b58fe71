"""Avro files in all compressions that Spark writes, and damaged blocks in them."""

from __future__ import annotations

import gzip
import re
from contextlib import suppress
from pathlib import Path

import fastavro
import pytest

import nova_assets as nova
from nova_assets.formats.avro_file import read_avro
from nova_assets.formats.input_file import InputFile
from nova_assets.formats.readers import read_table
from nova_assets.model.schema import parse_ddl

SCHEMA = parse_ddl("k bigint, s string")
AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "k", "type": "long"}, {"name": "s", "type": "string"}],
}
ROWS = [{"k": n, "s": f"text {n % 7}"} for n in range(120)]


def write(path: Path, codec: str) -> bytes:
    with path.open("wb") as stream:
        fastavro.writer(stream, AVRO, ROWS, codec=codec, sync_interval=300)
    return path.read_bytes()


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_each_compression_of_spark_is_read(tmp_path: Path, codec: str) -> None:
    write(tmp_path / "a.avro", codec)
    assert read_avro(InputFile(tmp_path / "a.avro"), SCHEMA).to_pylist() == ROWS


def test_an_unknown_compression_is_told(tmp_path: Path) -> None:
    content = write(tmp_path / "a.avro", "null")
    (tmp_path / "a.avro").write_bytes(content.replace(b"avro.codec\x08null", b"avro.codec\x08lzma"))
    with pytest.raises(nova.BadRecord, match=r"(?s)a compression that cannot be read.*lzma.*snappy.*write the file"):
        read_avro(InputFile(tmp_path / "a.avro"), SCHEMA)


def test_no_flipped_bit_of_a_snappy_file_changes_a_row(tmp_path: Path) -> None:
    content = write(tmp_path / "a.avro", "snappy")
    first_block = content.find(content[-16:]) + 16  # after the end mark of the header
    for position in range(first_block, len(content) - 16, 3):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        (tmp_path / "b.avro").write_bytes(damaged)
        with suppress(nova.BadRecord):
            # A copy from another place may give the same bytes.
            assert read_avro(InputFile(tmp_path / "b.avro"), SCHEMA).to_pylist() == ROWS


def test_a_block_with_more_content_than_records_is_refused(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "a.avro", "null"))
    content[content.find(content[-16:]) + 16] -= 2  # one record less, in the notation of Avro
    (tmp_path / "a.avro").write_bytes(content)
    with pytest.raises(nova.BadRecord, match=r"(?s)the Avro file is damaged.*more content than \d+ records"):
        read_avro(InputFile(tmp_path / "a.avro"), SCHEMA)


def test_a_cut_file_is_not_complete_and_a_turned_bit_is_damage(tmp_path: Path) -> None:
    content = write(tmp_path / "a.avro", "null")
    sync = content[-16:]
    blocks = [n + 16 for n in range(len(content)) if content.startswith(sync, n)][:-1]
    path = tmp_path / "b.avro"
    for length in range(3, len(content), 5):
        path.write_bytes(content[:length])
        if length not in blocks:  # nothing tells that a file goes on after a block
            with pytest.raises(nova.BadRecord, match=r"(?s)not a complete Avro file.*seems to be truncated"):
                read_avro(InputFile(path), SCHEMA)
    for position in range(blocks[0], len(content) - 16, 5):
        path.write_bytes(content[:position] + bytes([content[position] ^ 128]) + content[position + 1 :])
        try:
            read_avro(InputFile(path), SCHEMA)
        except nova.BadRecord as error:
            assert "seems to be truncated" not in str(error)
            assert not re.search(r"found: +('\w+'|\w+Error|list index)", str(error)), str(error)


def test_a_damaged_length_needs_no_memory(tmp_path: Path) -> None:
    content = write(tmp_path / "a.avro", "null")
    length = content.find(content[-16:]) + 17  # after the count of the first block
    (tmp_path / "a.avro").write_bytes(content[:length] + b"\xfe\xff\xff\xff\xff\xff\x0f" + content[length + 2 :])
    with pytest.raises(nova.BadRecord, match=r"(?s)the Avro file is damaged.*bytes at byte \d+ of a file of \d+ bytes"):
        read_avro(InputFile(tmp_path / "a.avro"), SCHEMA)


def test_a_compressed_file_is_longer_than_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.avro.gz").write_bytes(gzip.compress(write(tmp_path / "a.avro", "null")))
    assert read_avro(InputFile(tmp_path / "a.avro.gz"), SCHEMA).to_pylist() == ROWS


def test_a_file_without_records_is_empty(tmp_path: Path) -> None:
    with (tmp_path / "a.avro").open("wb") as stream:
        fastavro.writer(stream, AVRO, [])
    with pytest.raises(nova.EmptyInput, match=r"a\.avro is empty"):
        read_table(InputFile(tmp_path / "a.avro"), "avro", None)
    assert read_table(InputFile(tmp_path / "a.avro"), "avro", SCHEMA).num_rows == 0
