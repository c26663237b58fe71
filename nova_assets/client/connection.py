"""Client of the service: ``nova.connect()`` and the ``Store`` methods that the service offers."""

from __future__ import annotations

import io
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote

import pyarrow as pa

from nova_assets.client.rows import RemoteSelection
from nova_assets.client.transport import ServiceTransport
from nova_assets.engine.inputs.insert_data import convert_insert_data
from nova_assets.errors import (
    ChannelNotFound,
    CommitOutcomeUnknown,
    DefinitionError,
    NotAllowed,
    RequestTimedOut,
    ServiceBusy,
    ServiceUnavailable,
)
from nova_assets.masking import mask_address
from nova_assets.model.block import Kind
from nova_assets.model.block_options import BlockFormat, name_of_merge_model
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, CollectedGarbage, Cursor, PartitionState
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution, Firing
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import format_value_text
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import Instant
from nova_assets.plan.compaction import PlannedCompaction
from nova_assets.renamed import DeploymentHandle
from nova_assets.service.http.asgi import ARROW, LINES, PARQUET
from nova_assets.store.insert import InsertCheck

T = TypeVar("T")


def connect(url: str | Sequence[str], token: str | None = None, *, timeout: float = 60.0) -> Connection:
    """Connect to a service (``nova serve``). The first request is sent by the first method call.

    Args:
        url: address of the service, such as ``http://127.0.0.1:8765``. Or several addresses of services with the same
            catalog, as a list or separated by commas. Calls are spread among them, and an address that fails is passed
            over.
        token: access token (``nova token add``). None for a service without tokens.
        timeout: seconds to wait for the start of a response, and then for each further part of the response.
    """
    return Connection(url, token, timeout)


class Connection(DeploymentHandle):
    """Remote access to the channels of a deployment, through the service of the deployment. The connection caches
    nothing.

    Every method raises ServiceUnavailable if the service does not answer, and BadToken or NotAllowed if the token does
    not grant the right. Apart from that, a method raises the errors of the ``Store`` method with the same name. Failed
    requests are retried, at another address if there are several. Inserts are retried, too, because each insert carries
    an idempotency key. Requests that must not take effect twice are retried only if no service has begun with them.

    Args:
        addresses: addresses of the service.
    """

    _public_name = "nova.Connection"

    def __init__(self, url: str | Sequence[str], token: str | None, timeout: float) -> None:
        self._transport = ServiceTransport(url, token, timeout)
        self.addresses = self._transport.addresses
        self.url = ",".join(self.addresses)

    def __repr__(self) -> str:
        return f"<Connection {', '.join(map(mask_address, self.addresses))}>"

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    # data

    def insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        idempotency_key: str | None = None,
        partition: str | Mapping[str, object] | None = None,
        *,
        merge: MergeModel | None = None,
        format: BlockFormat | None = None,
    ) -> Commit:
        """Insert one block into a channel, like ``Store.insert``.

        The insert is atomic. The rows are inserted once, however often the request has to be sent.

        Args:
            data: an Arrow table, a pandas DataFrame, a list of dicts, or the path of a file.
            idempotency_key: key of this insert. By default, a random key. If the service does not answer, the error
                contains the key.
            merge: merge model of this delta: ``nova.Append()``, ``nova.Multiset()`` or ``nova.Upsert(key=...)``. Other
                models cannot be sent.
            format: file format of this block.

        Raises:
            DefinitionError: the merge model cannot be sent.
        """
        retry_key = idempotency_key or f"connection-{uuid.uuid4().hex}"
        try:
            return self._post_block(
                channel, data, _insert_parameters(kind, partition, merge, format), retry_key, Commit.from_json
            )
        except (ServiceUnavailable, ServiceBusy, RequestTimedOut, CommitOutcomeUnknown) as error:
            if error.fields.get("unsent"):
                raise
            remedy = (
                f"insert again with idempotency_key={retry_key!r}; the first request may have succeeded, "
                "and the key prevents a second insert"
            )
            raise type(error)(
                error.what, found=error.found, next=remedy, **error.fields, idempotency_key=retry_key
            ) from error

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
        *,
        merge: MergeModel | None = None,
        format: BlockFormat | None = None,
    ) -> InsertCheck:
        """Dry run of ``insert``: validate the data without changing anything."""
        parameters = {**_insert_parameters(kind, partition, merge, format), "dry_run": "true"}

        def read_check(checked: Any) -> InsertCheck:
            schema, head = Schema.from_json(checked["columns"]), checked["head"]
            return InsertCheck(checked["channel"], checked["kind"], head, schema, head + 1)

        return self._post_block(channel, data, parameters, None, read_check)

    def read(
        self,
        channel: Channel | str,
        at: int | None = None,
        *,
        since: int | None = None,
        partition: str | Mapping[str, object] | None = None,
        columns: Sequence[str] | None = None,
        keys: Any = None,
    ) -> RemoteSelection:
        """Select data of a channel, like ``Store.read``.

        The rows are transferred when the selection is converted to a frame. The service pins the version during the
        transfer.

        Args:
            keys: a table, a pandas DataFrame or a list of dicts with the channel's key columns. Only rows with these
                keys are read.
        """
        request = {
            "at": at,
            "since": since,
            "partition": _partition_as_text(partition),
            "columns": None if columns is None else list(columns),
            "keys": None
            if keys is None
            else _keys_as_json(convert_insert_data(keys, None) if keys != [] else pa.table({})),
        }
        return RemoteSelection(
            self._transport.stream_rows,
            f"{_channel_path(channel)}/read",
            {k: v for k, v in request.items() if v is not None},
            attempts=len(self.addresses),
        )

    # maintenance

    def compact(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        partitions: Sequence[str] | None = None,
    ) -> Commit | None:
        """Add a base at the newest number of each partition that has deltas (R14)."""
        return self._request_compaction(
            channel, force, chained, partitions, False, lambda answer: _optional(Commit.from_json)(answer["commit"])
        )

    def compactable(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        partitions: Sequence[str] | None = None,
    ) -> tuple[PlannedCompaction, ...]:
        """Dry run of ``compact``: the blocks that ``compact`` would add, with the reasons."""
        return self._request_compaction(
            channel,
            force,
            chained,
            partitions,
            True,
            lambda answer: tuple(map(PlannedCompaction.from_json, answer["wanted"])),
        )

    def _request_compaction(
        self,
        channel: Channel | str,
        force: bool,
        chained: bool,
        partitions: Sequence[str] | None,
        dry_run: bool,
        read_answer: Callable[[Any], T],
    ) -> T:
        request: dict[str, Any] = {"force": force, "chained": chained, "dry_run": dry_run}
        request |= {} if partitions is None else {"partitions": list(partitions)}
        return self._transport.post(f"{_channel_path(channel)}/compact", request, read_answer)

    def collect_garbage(self, channel: Channel | str, *, retain: str | None = None) -> CollectedGarbage:
        """Collect the blocks of a channel that no retained answer needs (R15)."""
        request = {} if retain is None else {"retain": retain}
        return self._transport.post(f"{_channel_path(channel)}/collect", request, CollectedGarbage.from_json)

    def drop(self, channel: Channel | str, partition: str | Mapping[str, object]) -> Commit | None:
        """Drop a partition, or every partition with given values of some dimensions (R19)."""
        request = {"partition": _partition_as_text(partition)}
        return self._transport.post(f"{_channel_path(channel)}/drop", request, _optional(Commit.from_json))

    def restore(self, channel: Channel | str, at: int) -> Commit:
        """Restore the content that a channel had at a sequence number (R19)."""
        return self._transport.post(f"{_channel_path(channel)}/restore", {"at": at}, Commit.from_json)

    # inspection

    def channels(self) -> list[ChannelState]:
        """Every channel that the token may read, with its head, rows and bytes."""
        return self._transport.get("/v1/channels", _list_of(ChannelState.from_json))

    def channel(self, name: str) -> ChannelState:
        """State of one channel."""
        return self._transport.get(_channel_path(name), ChannelState.from_json)

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """Partitions of a channel, sorted by name. Dropped partitions are included (``is_dropped``)."""
        path, scope = f"{_channel_path(channel)}/partitions", _partition_as_text(partition)
        return self._transport.get(path, _list_of(PartitionState.from_json), partition=scope)

    def timeline(self, channel: Channel | str, limit: int = 10_000) -> list[Instant]:
        """Instants of a channel, oldest first. Returns the latest ``limit`` instants, at most 10,000."""
        return self._transport.get(f"{_channel_path(channel)}/timeline", _list_of(Instant.from_json), limit=limit)

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """Cursors: how far each binding has read each channel and partition."""
        return self._transport.get("/v1/cursors", _list_of(Cursor.from_json), binding=binding)

    def executions(self, binding: str | None = None, limit: int = 100) -> list[Execution]:
        """Executions, latest first."""
        return self._transport.get("/v1/executions", _list_of(Execution.from_json), binding=binding, limit=limit)

    def firings(self, binding: str | None = None, limit: int = 100) -> list[Firing]:
        """Firings of triggers, latest first."""
        return self._transport.get("/v1/firings", _list_of(Firing.from_json), binding=binding, limit=limit)

    def _post_block(
        self,
        channel: Channel | str,
        data: Any,
        parameters: Mapping[str, Any],
        idempotency_key: str | None,
        read_answer: Callable[[Any], T],
    ) -> T:
        path = _channel_path(channel)
        with open_insert_body(data, lambda: self._fetch_schema(path)) as (file, media_type):
            return self._transport.post_file(
                f"{path}/blocks", file, media_type, parameters, idempotency_key, read_answer
            )

    def _fetch_schema(self, channel_path: str) -> Schema | None:
        """Schema by which the client parses rows and lines.

        Raises:
            NotAllowed: the token may write but not read, so the service does not reveal the columns.
        """
        return self._transport.get(
            f"{channel_path}/schema", lambda answer: _optional(Schema.from_json)(answer["columns"])
        )


def _list_of(read: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    def read_list(answer: Any) -> list[T]:
        if not isinstance(answer, list):
            raise TypeError(f"{type(answer).__name__} is no list")
        return [read(item) for item in answer]

    return read_list


def _optional(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda answer: None if answer is None else read(answer)


def _insert_parameters(
    kind: Kind,
    partition: str | Mapping[str, object] | None,
    merge: MergeModel | None,
    format: BlockFormat | None,
) -> dict[str, Any]:
    """Query parameters of an insert. Raises DefinitionError for a merge model that cannot be sent."""
    name = None if merge is None else name_of_merge_model(merge)
    if merge is not None and name is None:
        raise DefinitionError(
            "this merge model of a block cannot be sent to a service",
            found=repr(merge),
            expected="nova.Append(), nova.Multiset() or nova.Upsert(key=...)",
            next="insert with nova.open()",
        )
    return {
        "kind": kind,
        "partition": _partition_as_text(partition),
        "merge": name,
        "merge_key": None if merge is None else list(merge.key) or None,
        "format": format,
    }


def _channel_path(channel: Channel | str) -> str:
    name = channel.name if isinstance(channel, Channel) else channel
    return f"/v1/channels/{quote(name, safe='')}"


def _partition_as_text(partition: str | Mapping[str, object] | None) -> str | None:
    if partition is None or isinstance(partition, str):
        return partition
    return "/".join(f"{c}={format_value_text(None if v is None else str(v))}" for c, v in partition.items())


def _keys_as_json(keys: pa.Table) -> list[dict[str, Any]]:
    """Keys as JSON values. The service converts them to the channel's types."""

    def to_json_value(value: Any) -> Any:
        return value if isinstance(value, bool | int | float | str | None) else str(value)

    from nova_assets.formats.python_values import to_python_rows

    return [{column: to_json_value(value) for column, value in row.items()} for row in to_python_rows(keys)]


_MEDIA_TYPE_BY_SUFFIX = {".parquet": PARQUET, ".jsonl": LINES, ".ndjson": LINES}


@contextmanager
def open_insert_body(data: Any, fetch_schema: Callable[[], Schema | None]) -> Iterator[tuple[IO[bytes], str]]:
    """Request body as a file, with its media type.

    Args:
        data: as for ``Connection.insert``.
        fetch_schema: fetches the channel's schema. Called if only the channel can tell the column types of the data.
    """
    if isinstance(data, str | Path) and Path(data).suffix in _MEDIA_TYPE_BY_SUFFIX and Path(data).is_file():
        with Path(data).open("rb") as file:
            yield file, _MEDIA_TYPE_BY_SUFFIX[Path(data).suffix]
        return
    try:
        schema = fetch_schema() if _needs_channel_schema(data) else None
    # A token without read access gets no schema, and the channel may be defined only in the service's project.
    except (NotAllowed, ChannelNotFound):
        if not isinstance(data, str | Path):
            yield io.BytesIO("".join(map(_json_line, data)).encode()), LINES
            return
        schema = None
    table = convert_insert_data(data, schema)
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        yield file, ARROW


def _needs_channel_schema(data: Any) -> bool:
    """Whether only the channel can tell the column types of the data."""
    return isinstance(data, str | Path) or (isinstance(data, Sequence) and not isinstance(data, pa.Table))


def _json_line(row: Any) -> str:
    """Row as a line of JSON. Values without a JSON type become text, which the service parses by the schema."""
    return json.dumps(row, default=str) + "\n"
