"""Publishing a channel as a folder in an object store or in HDFS. Nothing is renamed or linked.

s3://lake/exports/actions/_edition.json                          the edition: its number, the files of each partition
s3://lake/exports/actions/dt=2024-01-01/_SUCCESS                 the day is sealed
s3://lake/exports/actions/dt=2024-01-01/action=login/manifest    addresses of the partition's files, one per line
s3://lake/exports/.actions.editions/00000012.json                the edition, for its current readers
s3://lake/exports/.actions.editions/00000012/dt=…/action=login/part-….parquet    files that were converted for it
s3://lake/exports/.actions.editions/layout.json                  layout of converted files, from a take-over

An object store replaces one object atomically. So a partition switches when its ``manifest`` is replaced, and the table
switches when ``_edition.json`` is replaced. Hive, Trino, Athena and Presto read such manifests
(``SymlinkTextInputFormat``). Files of an old edition stay until its readers have finished.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from nova_assets.crash_points import crash_point
from nova_assets.errors import NotSupported, TableTaken, TableUnavailable
from nova_assets.model.published_version import PublishedContent, TableFileLayout, TableFormat, TableStore
from nova_assets.publish.edition_folder import (
    CONVERSIONS_AT_ONCE,
    SUCCESS_FILE,
    EditionPart,
    hive_partition_path,
    plan_edition,
)
from nova_assets.publish.target import Edition, check_no_later_version, check_owner

EDITION_FILE = "_edition.json"
MANIFEST = "manifest"
_OWNER_FILE = "owner"
_LAYOUT_FILE = "layout.json"


class RemoteHivePublishTarget:
    """The published folder of one channel in S3 or HDFS.

    Args:
        address: address at which readers find the channel.
        store: reads and writes objects.
        warehouse_address: address of all blocks, which the folder must not overlap.
        owner: identifies the catalog and the channel.
        format: format of converted files; None for the channel's own files, where readers of the folder can reach them.
    """

    def __init__(
        self, address: str, store: TableStore, warehouse_address: str, owner: str, format: TableFormat | None
    ) -> None:
        self.address = address.rstrip("/")
        parent, _, name = self.address.rpartition("/")
        self.editions_address = f"{parent}/.{name}.editions"
        self.store = store
        self.warehouse_address = warehouse_address.rstrip("/")
        self.owner = owner
        is_warehouse_near = self.address.split("/")[:3] == self.warehouse_address.split("/")[:3]
        self.format: TableFormat | None = format or (None if is_warehouse_near else "parquet")

    def check_can_publish(self, *, take_over: bool = False) -> None:
        for own in (self.address, self.editions_address):
            if f"{own}/".startswith(f"{self.warehouse_address}/") or f"{self.warehouse_address}/".startswith(f"{own}/"):
                raise TableTaken(
                    f"{self.address} cannot be published in",
                    found=f"{self.warehouse_address}, which belongs to the deployment itself",
                    expected="an address outside of the warehouse",
                    path=self.address,
                )
        with self._translate_os_errors():
            edition = self._read_edition()
            if edition is not None:
                self._check_ownership(edition)
            elif self._is_begun():
                return  # a first publication has failed before its end
            elif existing := self.store.list(self.address):
                error = NotSupported if take_over else TableTaken
                raise error(
                    f"{self.address} exists already, and does not belong to this channel",
                    found=f"{len(existing)} objects, such as {existing[0]}",
                    expected="no objects: readers that list a folder would find old and new files together",
                    next=f'publish under another address, such as nova.hive("{self.address}_v2"), and take this folder '
                    f"over from there: nova publish CHANNEL --take-over-from {self.address}",
                )

    def use_layout(self, layout: TableFileLayout) -> None:
        """Write the files of all editions in the layout of a folder that the channel takes over.

        Raises:
            TableTaken: the table has editions already, in another layout.
            TableUnavailable: the store does not answer.
        """
        with self._translate_os_errors():
            if self._read_layout() == layout:
                return
            if (edition := self._read_edition()) is not None:
                raise TableTaken(
                    f"{self.address} was published before a folder was taken over",
                    found=f"edition {edition['edition']}, whose files have a layout of their own",
                    expected="a table without editions",
                    next=f'publish under another address, such as nova.hive("{self.address}_v2")',
                    path=self.address,
                )
            self._write_owner_file()
            self.store.write(f"{self.editions_address}/{_LAYOUT_FILE}", json.dumps(layout.as_json()).encode())

    def published_version(self) -> int | None:
        with self._translate_os_errors():
            edition = self._read_edition()
            return int(edition["edition"]) if edition is not None and edition["of"] == self.owner else None

    def is_complete(self, number: int) -> bool:
        return self.published_version() == number

    def publish(self, edition: Edition) -> None:
        number, content = edition.number, edition.content
        self.check_can_publish(take_over=edition.take_over)
        with self._translate_os_errors():
            shown = self._read_edition()
            self._check_no_later_version(number, shown)
            previous = {} if shown is None else _parts_of(shown)
            self._write_owner_file()
            self.store.delete(self.store.list(f"{self.editions_address}/{number:08d}"))  # left by a failed attempt
            parts = self._write_parts(edition, previous)
            text = self._edition_text(number, content, parts)
            self.store.write(self._edition_address(number), text)
            crash_point("edition.made")
            # After a failed attempt, any manifest may be newer than the edition that is shown.
            known = previous if shown is not None and shown["edition"] == number - 1 else {}
            self._check_no_later_version(number, self._read_edition())
            self._switch_partitions(content, parts, known, [] if shown is None else shown["sealed"])
            self.store.write(f"{self.address}/{EDITION_FILE}", text)
            self.store.write(f"{self.address}/{SUCCESS_FILE}", b"")

    def delete_versions(self, numbers: Collection[int]) -> None:
        with self._translate_os_errors():
            edition = self._read_edition()
            shown = 0 if edition is None else int(edition["edition"])
            retained = {
                file
                for n in range(min(numbers, default=0), shown + 1)
                if n not in numbers or n == shown
                for part in self._read_parts(n).values()
                for file in part.files
            }
            for number in sorted(n for n in numbers if n != shown):
                files = self.store.list(f"{self.editions_address}/{number:08d}")
                self.store.delete(f for f in files if f not in retained)
                self.store.delete([self._edition_address(number)])

    def withdraw(self) -> None:
        with self._translate_os_errors():
            edition = self._read_edition()
            if edition is not None:
                self._check_ownership(edition)
            elif not self._is_begun():
                return
            own_names = (MANIFEST, SUCCESS_FILE, EDITION_FILE)
            listed = self.store.list(self.address)
            self.store.delete(a for a in listed if a.rsplit("/", 1)[1] in own_names)
            self.store.delete(self.store.list(self.editions_address))

    def _write_parts(self, edition: Edition, previous: Mapping[str, EditionPart]) -> dict[str, EditionPart]:
        """Files of each partition, by the path of its folder; converted where the partition has changed."""
        content, layout = edition.content, self._read_layout()
        if layout is None and self.format is not None:
            layout = TableFileLayout(self.format, tuple(d.column for d in content.dimensions))
        if layout is None:
            addresses: dict[str, list[str]] = {}
            for file, address in zip(content.files, edition.file_paths, strict=True):
                addresses.setdefault(hive_partition_path(file.partition, content), []).append(address)
            return {path: EditionPart("", tuple(files)) for path, files in addresses.items()}
        assert edition.convert is not None, "a table with converted files needs a converter"
        plan = plan_edition(content, layout, previous)
        folder = f"{self.editions_address}/{edition.number:08d}"
        write, file_layout = edition.convert, layout

        def convert_part(item: tuple[str, tuple[str, str]]) -> tuple[str, EditionPart]:
            path, (partition, source) = item
            address = f"{folder}/{path}".rstrip("/")
            files = write(partition, address, file_layout)
            return path, EditionPart(source, tuple(f"{address}/{f.name}" for f in files))

        with ThreadPoolExecutor(CONVERSIONS_AT_ONCE, "nova-convert") as pool:
            converted = dict(pool.map(convert_part, plan.converted.items()))
        return {**plan.kept, **converted}

    def _switch_partitions(
        self,
        content: PublishedContent,
        parts: Mapping[str, EditionPart],
        known: Mapping[str, EditionPart],
        sealed_before: Sequence[str],
    ) -> None:
        """Replace the manifest of each partition that has changed. Marks of open days go first, new marks come last."""
        sealed = [hive_partition_path(scope, content) for scope in content.sealed]
        self.store.delete(self._in_table(path, SUCCESS_FILE) for path in sealed_before if path not in sealed)
        changed = [path for path, part in parts.items() if known.get(path) != part]
        self.store.write_all(
            (self._in_table(path, MANIFEST), "".join(f"{f}\n" for f in parts[path].files).encode()) for path in changed
        )
        crash_point("edition.exchanging")
        self.store.delete(self._in_table(path, MANIFEST) for path in known if path not in parts)
        self.store.write_all((self._in_table(path, SUCCESS_FILE), b"") for path in sealed if path not in sealed_before)

    def _write_owner_file(self) -> None:
        if not self._is_begun():
            self.store.delete([f"{self.editions_address}/{_LAYOUT_FILE}"])  # of an earlier owner
            self.store.write(f"{self.editions_address}/{_OWNER_FILE}", self.owner.encode())

    def _read_layout(self) -> TableFileLayout | None:
        """Layout of a folder that was taken over; None if there was none."""
        text = self.store.read(f"{self.editions_address}/{_LAYOUT_FILE}")
        return None if text is None else TableFileLayout.from_json(json.loads(text))

    def _is_begun(self) -> bool:
        """Whether this channel has begun to publish here."""
        return self.store.read(f"{self.editions_address}/{_OWNER_FILE}") == self.owner.encode()

    def _in_table(self, path: str, name: str) -> str:
        return f"{self.address}/{path}/{name}" if path else f"{self.address}/{name}"

    def _edition_text(self, number: int, content: PublishedContent, parts: Mapping[str, EditionPart]) -> bytes:
        edition = {
            "of": self.owner,
            "edition": number,
            "seq": content.seq,
            "sealed": [hive_partition_path(scope, content) for scope in content.sealed],
            "partitions": {path: [p.source, list(p.files)] for path, p in sorted(parts.items())},
        }
        return json.dumps(edition, indent=1).encode()

    def _edition_address(self, number: int) -> str:
        return f"{self.editions_address}/{number:08d}.json"

    def _read_edition(self) -> dict[str, Any] | None:
        """The edition that readers see; None if the table does not exist."""
        text = self.store.read(f"{self.address}/{EDITION_FILE}")
        return None if text is None else _parse_edition(text, self.address)

    def _read_parts(self, number: int) -> dict[str, EditionPart]:
        text = self.store.read(self._edition_address(number))
        return {} if text is None else _parts_of(_parse_edition(text, self.address))

    def _check_ownership(self, edition: Mapping[str, Any]) -> None:
        check_owner(self.address, edition["of"], self.owner)

    def _check_no_later_version(self, number: int, edition: Mapping[str, Any] | None) -> None:
        check_no_later_version(self.address, None if edition is None else edition["edition"], number)

    @contextmanager
    def _translate_os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnavailable(
                f"{self.address} cannot be published in",
                found=f"{error.strerror or error}".split("\n")[0],
                expected="a store that answers, and credentials that can read and write there",
                next="correct the cause; readers still see the previous version of each partition",
                path=self.address,
            ) from error


def _parse_edition(text: bytes, address: str) -> dict[str, Any]:
    try:
        edition: dict[str, Any] = json.loads(text)
        if {"of", "edition", "sealed", "partitions"} <= edition.keys():
            return edition
    except (ValueError, AttributeError):
        pass
    raise TableTaken(
        f"{address}/{EDITION_FILE} is not an edition of nova",
        found=text[:60].decode(errors="replace"),
        expected="the JSON that nova publish has written",
        next="publish under another address, or move the objects away",
        path=address,
    )


def _parts_of(edition: Mapping[str, Any]) -> dict[str, EditionPart]:
    return {path: EditionPart(source, tuple(files)) for path, (source, files) in edition["partitions"].items()}
