"""Writes the corpus: bodies of inserts that nobody should send.

    python -m nova_assets_tests.service.make_corpus

The suffix says what a body claims to be: ``.arrows`` an Arrow IPC stream, ``.parquet``, ``.jsonl``. Those that are
called ``good_...`` are taken. What a mutation finds that does harm is added here, under a name that says what it is.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).with_name("corpus")

ROWS = pa.table({"sku": [11, 12, 13], "name": ["one", "two", "three"], "price": [1.5, 2.5, 3.5]})
_MANY = 1 << 21
"""Rows that take too much room under the limits of the tests, and none here."""


def corpus() -> dict[str, bytes]:
    """Every body by its name."""
    return dict(sorted([*_arrow(), *_parquet(), *_lines()]))


def _arrow() -> Iterator[tuple[str, bytes]]:
    good = stream(ROWS)
    yield "good.arrows", good
    yield "good_without_an_end.arrows", good[:-8]
    yield "good_compressed.arrows", stream(ROWS, compression="zstd")
    yield "good_of_no_rows.arrows", stream(ROWS.slice(0, 0))
    yield "good_delta_of_a_dictionary.arrows", _with_delta()
    schema_ends = len(stream(ROWS.slice(0, 0))) - 8
    for name, at in {"the_first_word": 3, "the_first_length": 6, "the_schema": 90, "a_batch": schema_ends + 40}.items():
        yield f"cut_in_{name}.arrows", good[:at]
    for part in (2, 4, 8):
        yield f"cut_before_the_last_{part * 8}th.arrows", good[: len(good) - 8 - part * 8]
    for at in (4, 5, 20, 60, 200, schema_ends + 4, schema_ends + 20, schema_ends + 60):
        yield f"flipped_at_{at}.arrows", flipped(good, at)
    yield "metadata_of_2_gib.arrows", good[:4] + struct.pack("<i", 2**31 - 1) + good[8:]
    yield "metadata_of_less_than_nothing.arrows", good[:4] + struct.pack("<i", -2) + good[8:]
    yield "body_of_an_exbibyte.arrows", _with_body_length(good, schema_ends, 1 << 60)
    yield "body_of_less_than_nothing.arrows", _with_body_length(good, schema_ends, -64)
    yield "offsets_out_of_bounds.arrows", _with_offsets(0, 1 << 30, 1 << 30)
    yield "offsets_below_zero.arrows", _with_offsets(-8, -4, 2)
    yield "offsets_backwards.arrows", _with_offsets(2, 1, 0)
    yield "text_that_is_no_utf8.arrows", stream(ROWS).replace(b"onetwo", b"\xff\xfetwo")
    yield "index_out_of_its_dictionary.arrows", stream(_dictionary([0, 99], ["a"]))
    yield "dictionary_that_never_comes.arrows", _without_dictionary()
    yield "dictionary_of_long_values.arrows", stream(_dictionary([0] * 2000, ["x" * 20_000]), compression="zstd")
    yield "views_of_one_long_value.arrows", stream(_views(), compression="zstd")
    yield "buffers_that_expand.arrows", stream(_zeros(), compression="zstd")
    yield "buffer_that_says_it_expands_to_an_exbibyte.arrows", _saying_it_expands()
    yield "rows_of_nothing.arrows", stream(pa.table({"sku": pa.nulls(2**31 - 1)}))
    yield "run_of_two_milliards.arrows", stream(_run())
    yield "nested_1000_deep.arrows", _nested(1000)
    yield "nested_100_deep.arrows", _nested(100)
    yield "no_columns.arrows", stream(pa.table({}))
    yield "column_twice.arrows", stream(pa.table([[1], [2]], names=["sku", "sku"]))
    yield "other_columns.arrows", stream(pa.table({"skew": [1], "wombat": ["x"]}))
    yield "other_types.arrows", stream(pa.table({"sku": ["eleven"], "name": [1], "price": [b"x"]}))
    yield "key_twice.arrows", stream(pa.table({"sku": [1, 1], "name": ["a", "b"], "price": [1.0, 2.0]}))
    yield (
        "key_that_is_null.arrows",
        stream(pa.table({"sku": pa.array([None], pa.int64()), "name": ["a"], "price": [1]})),
    )
    yield "file_and_no_stream.arrows", _file()
    yield "end_alone.arrows", b"\xff\xff\xff\xff\0\0\0\0"


def _parquet() -> Iterator[tuple[str, bytes]]:
    good = parquet(ROWS)
    size = struct.unpack("<I", good[-8:-4])[0]
    yield "good.parquet", good
    yield "good_of_no_rows.parquet", parquet(ROWS.slice(0, 0))
    for name, at in {
        "the_magic": 3,
        "a_page": 60,
        "the_footer": len(good) - size // 2,
        "the_end": len(good) - 1,
    }.items():
        yield f"cut_in_{name}.parquet", good[:at]
    for at in (5, 100, len(good) - size - 4, len(good) - size + 9):
        yield f"flipped_at_{at}.parquet", flipped(good, at)
    yield "magic_of_another.parquet", b"PAR2" + good[4:-4] + b"PAR2"
    yield "magic_alone.parquet", b"PAR1"
    yield "magic_twice.parquet", b"PAR1PAR1"
    yield "encrypted_footer.parquet", b"PARE" + good[4:-4] + b"PARE"
    for said in (0, 1, size - 1, size + 1, len(good), 2**31 - 1, 2**32 - 1):
        yield f"footer_of_{said}.parquet", good[:-8] + struct.pack("<I", said) + b"PAR1"
    yield "pages_that_are_gone.parquet", b"PAR1" + good[-size - 8 :]
    yield "zeros_for_pages.parquet", b"PAR1" + bytes(len(good) - size - 12) + good[-size - 8 :]
    yield "rows_in_one_run.parquet", parquet(pa.table({"sku": _zeros().column("sku")}), compression="zstd")
    yield "one_long_value_in_one_run.parquet", parquet(_dictionary([0] * 8192, ["x" * 20_000]), compression="zstd")
    yield "column_twice.parquet", parquet(pa.table([[1], [2]], names=["sku", "sku"]))
    yield "other_columns.parquet", parquet(pa.table({"skew": [1]}))
    yield "other_types.parquet", parquet(pa.table({"sku": ["eleven"]}))


def _lines() -> Iterator[tuple[str, bytes]]:
    good = b'{"sku": 11, "name": "one", "price": 1.5}\n{"sku": 12, "name": "two", "price": 2.5}\n'
    yield "good.jsonl", good
    yield "good_with_crlf.jsonl", good.replace(b"\n", b"\r\n")
    yield "good_after_a_byte_order_mark.jsonl", b"\xef\xbb\xbf" + good
    yield "good_without_a_last_end.jsonl", good[:-1]
    yield "good_with_nan.jsonl", b'{"sku": 1, "price": NaN}\n'
    yield "cut_in_a_line.jsonl", good[:60]
    yield "infinite_key.jsonl", b'{"sku": Infinity}\n'
    yield "nan_for_a_key.jsonl", b'{"sku": NaN}\n'
    yield "number_of_400_digits.jsonl", b'{"sku": ' + b"9" * 400 + b"}\n"
    yield "number_beyond_a_long.jsonl", b'{"sku": 9223372036854775808}\n'
    yield "number_of_a_huge_exponent.jsonl", b'{"sku": 1e999999999}\n'
    yield "number_as_text.jsonl", b'{"sku": "eleven"}\n'
    yield "name_twice.jsonl", b'{"sku": 1, "sku": 2}\n'
    yield "column_that_is_none.jsonl", b'{"sku": 1, "skew": 2}\n'
    yield "lists_1000_deep.jsonl", b'{"sku": ' + b"[" * 1000 + b"]" * 1000 + b"}\n"
    yield "objects_1000_deep.jsonl", b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"\n"
    yield "no_utf8.jsonl", b'{"sku": 1, "name": "\xff\xfe"}\n'
    yield "overlong_utf8.jsonl", b'{"sku": 1, "name": "\xc0\xaf"}\n'
    yield "half_a_surrogate.jsonl", b'{"sku": 1, "name": "\\ud800"}\n'
    yield "utf16.jsonl", good.decode().encode("utf-16")
    yield "nul_bytes.jsonl", b'{"sku": 1, "name": "a"}\0\n\0'
    yield "nul_alone.jsonl", b"\0" * 64
    yield "control_bytes.jsonl", b'{"sku": 1, "name": "a\x01b"}\n'
    yield "no_object.jsonl", b"1\n2\n"
    yield "lists.jsonl", b"[1]\n[2]\n"
    yield "list_of_no_objects.jsonl", b"[1, 2]"
    yield "text.jsonl", b"Dear sir or madam,\n"
    yield "blank_lines.jsonl", b"\n\n  \n"
    yield "objects_in_one_line.jsonl", b'{"sku": 1}{"sku": 2} trailing\n'
    yield "gzipped.jsonl", gzip.compress(good, mtime=0)
    yield "names_of_their_own.jsonl", b"".join(b'{"sku": %d, "c%d": 1}\n' % (n, n) for n in range(300))


# Parts of bodies


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table, compression: str = "none") -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=compression, store_schema=False)
    return sink.getvalue()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def _file() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    return sink.getvalue()


def _with_body_length(data: bytes, at: int, length: int) -> bytes:
    """A stream whose first batch says that its body has another length."""
    size = struct.unpack("<i", data[at + 4 : at + 8])[0]
    message = pa.ipc.read_message(pa.py_buffer(data[at:]))
    said = struct.pack("<q", message.body.size)
    where = data.index(said, at + 8, at + 8 + size)
    return data[:where] + struct.pack("<q", length) + data[where + 8 :]


def _with_offsets(*offsets: int) -> bytes:
    """A stream whose texts lie elsewhere than they do."""
    data = stream(pa.table({"sku": [1, 2], "name": ["a", "b"], "price": [1.0, 2.0]}))
    where = data.rindex(struct.pack("<iii", 0, 1, 2))
    return data[:where] + struct.pack("<iii", *offsets) + data[where + 12 :]


def _dictionary(indices: list[int], values: list[str]) -> pa.Table:
    at = pa.array(indices, pa.int32())
    return pa.table(
        {"sku": pa.array(range(len(indices))), "name": pa.DictionaryArray.from_arrays(at, values, safe=False)}
    )


def _with_delta() -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    parts = [_batch(n, values) for n, values in _GROWING]
    with pa.ipc.new_stream(sink, parts[0].schema, options=options) as writer:
        for part in parts:
            writer.write_batch(part)
    return sink.getvalue()


def _batch(sku: int, values: list[str]) -> pa.RecordBatch:
    column = pa.DictionaryArray.from_arrays(pa.array([len(values) - 1], pa.int32()), values)
    return pa.record_batch({"sku": [sku], "name": column, "price": [1.5]})


_GROWING = [(21, ["a"]), (22, ["a", "b"]), (23, ["a", "b", "c"])]


def _without_dictionary() -> bytes:
    """The messages of a stream, without that of its dictionary."""
    data = stream(_dictionary([0], ["a"]))
    source, kept = pa.BufferReader(data), io.BytesIO()
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type != "dictionary":
            kept.write(message.serialize().to_pybytes())
    return kept.getvalue() + b"\xff\xff\xff\xff\0\0\0\0"


def _views() -> pa.Table:
    one = pa.array(["y" * 20_000], pa.string_view()).buffers()
    views = pa.py_buffer(one[1].to_pybytes() * 2000)
    array = pa.Array.from_buffers(pa.string_view(), 2000, [None, views, *one[2:]])
    return pa.table({"sku": pa.array(range(2000)), "name": array})


def _zeros() -> pa.Table:
    zeros = pa.Array.from_buffers(pa.int64(), _MANY, [None, pa.py_buffer(bytes(8 * _MANY))])
    return pa.table({"sku": zeros, "price": zeros.cast(pa.float64())})


def _saying_it_expands() -> bytes:
    """A compressed buffer begins with the length that it will have."""
    column = pa.table({"sku": pa.array([7] * 500)})
    data = stream(column, compression="zstd")
    return data.replace(struct.pack("<q", 4000), struct.pack("<q", 1 << 60), 1)


def _run() -> pa.Table:
    run: Any = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([1]))
    return pa.table({"sku": run})


def _nested(depth: int) -> bytes:
    type_: pa.DataType = pa.int64()
    for _ in range(depth):
        type_ = pa.struct([("a", type_)])
    written: bytes = pa.schema([("name", type_)]).serialize().to_pybytes()
    return written + b"\xff\xff\xff\xff\0\0\0\0"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = corpus()
    for old in FOLDER.iterdir():
        if old.name not in made:
            old.unlink()
    for name, data in made.items():
        (FOLDER / name).write_bytes(data)
    print(f"{len(made)} bodies, {sum(map(len, made.values())):,} bytes in {FOLDER}")


if __name__ == "__main__":
    main()
