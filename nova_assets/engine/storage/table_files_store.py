"""Objects of a published folder in S3 or HDFS."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from pyarrow import fs

from nova_assets.engine.storage import file_io
from nova_assets.engine.storage.integrity import MAX_PARALLEL_REQUESTS


class AddressedObjects:
    """The ``TableStore`` of all addresses that nova can reach."""

    def read(self, address: str) -> bytes | None:
        try:
            with file_io.open_input_stream(address) as stream:
                return bytes(stream.read_at(stream.size(), 0)) if stream.size() else b""
        except FileNotFoundError:
            return None

    open = staticmethod(file_io.open_input_stream)

    def write(self, address: str, data: bytes) -> None:
        files, path = file_io.filesystem_and_path(address)
        with files.open_output_stream(path) as stream:
            stream.write(data)

    def write_all(self, objects: Iterable[tuple[str, bytes]]) -> None:
        with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, "nova-publish") as pool:
            list(pool.map(lambda item: self.write(*item), objects))

    def delete(self, addresses: Iterable[str]) -> None:
        def delete_one(address: str) -> None:
            with suppress(FileNotFoundError):
                file_io.delete_file(address)

        with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, "nova-delete") as pool:
            list(pool.map(delete_one, addresses))

    def list(self, address: str) -> list[str]:
        files, path = file_io.filesystem_and_path(address)
        root = address.rstrip("/")
        found = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        return sorted(f"{root}{f.path.removeprefix(path.rstrip('/'))}" for f in found if f.is_file)
