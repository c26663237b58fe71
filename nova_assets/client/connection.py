"""Client of the service: ``nova.connect()`` and the ``Store`` methods that the service offers."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pyarrow as pa

from nova_assets.client.failures import check_response, is_untrusted_certificate, unreachable_error
from nova_assets.client.rows import ByteStreamFile, RemoteSelection, truncated_stream_error
from nova_assets.engine.inputs.insert_data import convert_insert_data
from nova_assets.errors import (
    ChannelNotFound,
    CommitOutcomeUnknown,
    NotAllowed,
    RequestTimedOut,
    ServiceBusy,
    ServiceUnavailable,
)
from nova_assets.file_views.trusted_certificates import trusted_ssl_context
from nova_assets.masking import mask_address, remember_secrets
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.channel_state import ChannelState, Cursor, PartitionState
from nova_assets.model.commit import Commit
from nova_assets.model.execution import Execution
from nova_assets.model.firing import Firing
from nova_assets.model.partitions import format_value_text
from nova_assets.model.retention import CollectedGarbage
from nova_assets.model.schema import Schema
from nova_assets.model.timeline import Instant
from nova_assets.operations.insert import InsertCheck
from nova_assets.plan.compaction import PlannedCompaction
from nova_assets.renamed import missing_attribute_error
from nova_assets.service.http.media_types import ARROW, LINES, PARQUET
from nova_assets.service.shapes.blocks import CheckedShape, CommitShape
from nova_assets.service.shapes.channels import ChannelShape, PartitionShape, SchemaShape
from nova_assets.service.shapes.executions import CursorShape, ExecutionShape, FiringShape
from nova_assets.service.shapes.maintenance import CollectedShape, CompactedShape
from nova_assets.service.shapes.shape import schema_from_columns
from nova_assets.service.shapes.timeline import InstantShape
from nova_assets.settings import check_http_address

_MEDIA_TYPE_BY_SUFFIX = {".parquet": PARQUET, ".jsonl": LINES, ".ndjson": LINES}

MAX_ATTEMPTS = 8
_RETRYABLE_STATUSES = (429, 503, 504)
"""HTTP statuses after which the client retries a repeatable request."""


def connect(url: str, token: str | None = None, *, timeout: float = 60.0) -> Connection:
    """Connect to a service (``nova serve``). The first request is sent by the first method call.

    Args:
        url: address of the service, such as ``http://127.0.0.1:8765``.
        token: access token (``nova token add``). None for a service without tokens.
        timeout: seconds to wait for the start of a response, and for each part of it.
    """
    return Connection(url, token, timeout)


class Connection:
    """Remote access to the channels of a deployment through its service. Nothing is cached here.

    Every method raises ServiceUnavailable if the service does not answer, and BadToken or NotAllowed if the token does
    not grant the right. Otherwise it raises the errors of the ``Store`` method of the same name. Failed requests are
    retried, inserts included: they carry an idempotency key for that purpose.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        self.url = url.rstrip("/")
        remember_secrets(url, values={"token": token or ""})
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(
            base_url=check_http_address("url", self.url),
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=10.0),
            trust_env=False,
            verify=trusted_ssl_context(),
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute_error("nova.Connection", name)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {mask_address(self.url)}>"

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # data

    def insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        idempotency_key: str | None = None,
        partition: str | Mapping[str, object] | None = None,
    ) -> Commit:
        """Insert one block into a channel, like ``Store.insert``.

        The insert is atomic. It happens once, however often the request has to be sent.

        Args:
            data: an Arrow table, a pandas DataFrame, a list of dicts, or the path of a file.
            idempotency_key: key of this insert. By default, a random key. The error contains it if no answer came.
        """
        key = idempotency_key or f"connection-{uuid.uuid4().hex}"
        try:
            found = self._post_block(channel, data, {"kind": kind, "partition": _partition_as_text(partition)}, key)
        except (ServiceUnavailable, ServiceBusy, RequestTimedOut, CommitOutcomeUnknown) as error:
            if error.fields.get("unsent"):
                raise
            next = f"insert it again with idempotency_key={key!r}: it may have come about, and is there once then"
            raise type(error)(error.what, found=error.found, next=next, **error.fields, idempotency_key=key) from error
        return CommitShape.model_validate(found).to_commit()

    def check_insert(
        self,
        channel: Channel | str,
        data: Any,
        kind: Kind = "delta",
        partition: str | Mapping[str, object] | None = None,
    ) -> InsertCheck:
        """Validate an insert without changing anything: the dry run of ``insert``."""
        asked = {"kind": kind, "partition": _partition_as_text(partition), "dry_run": "true"}
        found = CheckedShape.model_validate(self._post_block(channel, data, asked, None))
        return InsertCheck(found.channel, found.kind, found.head, schema_from_columns(found.columns) or Schema(()))

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

        The rows are transferred when the selection is converted to a frame. The service pins the version for that time.

        Args:
            keys: a table, a pandas DataFrame or a list of dicts with the channel's key columns. Only rows with these
                keys are read.
        """
        wanted = {
            "at": at,
            "since": since,
            "partition": _partition_as_text(partition),
            "columns": None if columns is None else list(columns),
            "keys": None
            if keys is None
            else _keys_as_json(convert_insert_data(keys, None) if keys != [] else pa.table({})),
        }
        return RemoteSelection(
            self._stream_rows, f"{_channel_path(channel)}/read", {k: v for k, v in wanted.items() if v is not None}
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
        done = self._request_compaction(channel, force, chained, partitions, False).commit
        return None if done is None else done.to_commit()

    def compactable(
        self,
        channel: Channel | str,
        *,
        force: bool = True,
        chained: bool = False,
        partitions: Sequence[str] | None = None,
    ) -> tuple[PlannedCompaction, ...]:
        """Blocks that ``compact`` would add, with the reasons: its dry run."""
        return tuple(c.to_compact() for c in self._request_compaction(channel, force, chained, partitions, True).wanted)

    def _request_compaction(
        self, channel: Channel | str, force: bool, chained: bool, partitions: Sequence[str] | None, dry_run: bool
    ) -> CompactedShape:
        wanted: dict[str, Any] = {"force": force, "chained": chained, "dry_run": dry_run}
        wanted |= {} if partitions is None else {"partitions": list(partitions)}
        return CompactedShape.model_validate(self._post(f"{_channel_path(channel)}/compact", wanted))

    def collect_garbage(self, channel: Channel | str, *, retain: str | None = None) -> CollectedGarbage:
        """Collect the blocks of a channel that no retained answer needs (R15)."""
        wanted = {} if retain is None else {"retain": retain}
        return CollectedShape.model_validate(self._post(f"{_channel_path(channel)}/collect", wanted)).to_collection()

    def drop(self, channel: Channel | str, partition: str | Mapping[str, object]) -> Commit | None:
        """Drop a partition, or every partition with given values of some dimensions (R19)."""
        found = self._post(f"{_channel_path(channel)}/drop", {"partition": _partition_as_text(partition)})
        return None if found is None else CommitShape.model_validate(found).to_commit()

    def restore(self, channel: Channel | str, at: int) -> Commit:
        """Restore the content that a channel had at a sequence number (R19)."""
        return CommitShape.model_validate(self._post(f"{_channel_path(channel)}/restore", {"at": at})).to_commit()

    # inspection

    def channels(self) -> list[ChannelState]:
        """Every channel that the token may read, with its head, rows and bytes."""
        return [ChannelShape.model_validate(s).to_channel_state() for s in self._get("/v1/channels")]

    def channel(self, name: str) -> ChannelState:
        """State of one channel."""
        return ChannelShape.model_validate(self._get(_channel_path(name))).to_channel_state()

    def partitions(
        self, channel: Channel | str, partition: str | Mapping[str, object] | None = None
    ) -> list[PartitionState]:
        """Partitions of a channel, sorted by name. Dropped partitions are included (``dropped``)."""
        found = self._get(f"{_channel_path(channel)}/partitions", partition=_partition_as_text(partition))
        return [PartitionShape.model_validate(p).to_partition_state() for p in found]

    def timeline(self, channel: Channel | str, limit: int = 10_000) -> list[Instant]:
        """Instants of a channel, oldest first. Returns the latest ``limit`` instants, at most 10,000."""
        found = self._get(f"{_channel_path(channel)}/timeline", limit=limit)
        return [InstantShape.model_validate(i).to_instant() for i in found]

    def cursors(self, binding: str | None = None) -> list[Cursor]:
        """Cursors: how far each binding has read each channel and partition."""
        return [CursorShape.model_validate(c).to_cursor() for c in self._get("/v1/cursors", binding=binding)]

    def executions(self, binding: str | None = None, limit: int = 100) -> list[Execution]:
        """Executions, latest first."""
        found = self._get("/v1/executions", binding=binding, limit=limit)
        return [ExecutionShape.model_validate(e).to_execution() for e in found]

    def firings(self, binding: str | None = None, limit: int = 100) -> list[Firing]:
        """Firings of triggers, latest first."""
        found = self._get("/v1/firings", binding=binding, limit=limit)
        return [FiringShape.model_validate(f).to_firing() for f in found]

    # transport

    def _get(self, path: str, **parameters: Any) -> Any:
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._send_with_retries(lambda: self._http.get(path, params=given)).json()

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request that changes state. It is sent again only if it did not reach the service."""
        return self._send_with_retries(lambda: self._http.post(path, json=body), is_repeatable=False).json()

    def _post_block(
        self, channel: Channel | str, data: Any, query_parameters: Mapping[str, Any], idempotency_key: str | None
    ) -> Mapping[str, Any]:
        given = {name: value for name, value in query_parameters.items() if value is not None}
        name = channel.name if isinstance(channel, Channel) else channel
        with self._open_request_body(name, data) as (file, kind):
            headers = {
                "Content-Type": kind,
                **({} if idempotency_key is None else {"Idempotency-Key": idempotency_key}),
            }

            def send() -> httpx.Response:
                file.seek(0)
                size = str(file.seek(0, io.SEEK_END))
                file.seek(0)
                return self._http.post(
                    f"{_channel_path(name)}/blocks",
                    params=given,
                    headers={**headers, "Content-Length": size},
                    content=iter(lambda: file.read(1 << 20), b""),
                )

            found: Mapping[str, Any] = self._send_with_retries(send).json()
            return found

    @contextmanager
    def _open_request_body(self, channel: str, data: Any) -> Iterator[tuple[Any, str]]:
        """Request body as a file, with its media type."""
        if isinstance(data, str | Path) and Path(data).suffix in _MEDIA_TYPE_BY_SUFFIX and Path(data).is_file():
            with Path(data).open("rb") as file:
                yield file, _MEDIA_TYPE_BY_SUFFIX[Path(data).suffix]
            return
        try:
            schema = self._fetch_schema(channel) if _needs_channel_schema(data) else None
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

    def _fetch_schema(self, channel: str) -> Schema | None:
        """Schema by which the client parses rows and lines.

        Raises:
            NotAllowed: the token may write but not read, so the service does not reveal the columns.
        """
        return schema_from_columns(SchemaShape.model_validate(self._get(f"{_channel_path(channel)}/schema")).columns)

    def _send_with_retries(self, send_request: Any, is_repeatable: bool = True) -> httpx.Response:
        """Send a request and retry failures with exponential backoff."""
        reached_service = False
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                response: httpx.Response = send_request()
            except httpx.TransportError as error:
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                reached_service = reached_service or not unsent
                if attempt == MAX_ATTEMPTS or is_untrusted_certificate(error) or not (is_repeatable or unsent):
                    raise unreachable_error(self.url, error, not reached_service) from error
            else:
                reached_service = True
                # Status 429 means that the service has not started the request, so even a change can be sent again.
                if attempt == MAX_ATTEMPTS or response.status_code not in (
                    _RETRYABLE_STATUSES if is_repeatable else (429,)
                ):
                    return check_response(response)
            time.sleep(min(0.1 * 2**attempt, 3.0) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")

    @contextmanager
    def _stream_rows(self, path: str, body: Mapping[str, Any]) -> Iterator[pa.RecordBatchReader]:
        """Stream the rows of a response.

        Raises:
            ServiceUnavailable: the stream ended too early.
        """

        def send_request() -> httpx.Response:
            response = self._http.send(self._http.build_request("POST", path, json=body), stream=True)
            if response.status_code != 200:
                response.read()
            return response

        try:
            with contextlib.closing(self._send_with_retries(send_request)) as response:
                source = ByteStreamFile(response.iter_bytes())
                try:
                    with pa.ipc.open_stream(pa.PythonFile(source, mode="r")) as reader:
                        yield reader
                        source.check_complete()
                except (pa.ArrowException, OSError) as error:
                    if source.is_truncated:
                        raise truncated_stream_error() from error
                    raise
        except httpx.TransportError as error:
            raise unreachable_error(self.url, error) from error


def _channel_path(channel: Channel | str) -> str:
    name = channel.name if isinstance(channel, Channel) else channel
    return f"/v1/channels/{quote(name, safe='')}"


def _partition_as_text(partition: str | Mapping[str, object] | None) -> str | None:
    if partition is None or isinstance(partition, str):
        return partition
    return "/".join(f"{c}={format_value_text(None if v is None else str(v))}" for c, v in partition.items())


def _needs_channel_schema(data: Any) -> bool:
    """Whether only the channel can tell the column types of the data."""
    return isinstance(data, str | Path) or (isinstance(data, Sequence) and not isinstance(data, pa.Table))


def _keys_as_json(keys: pa.Table) -> list[dict[str, Any]]:
    """Keys as JSON values. The service converts them to the channel's types."""

    def plain(value: Any) -> Any:
        return value if isinstance(value, bool | int | float | str | None) else str(value)

    return [{column: plain(value) for column, value in row.items()} for row in keys.to_pylist()]


def _json_line(row: Any) -> str:
    """Row as a line of JSON. Values without a JSON type become text, which the service parses by the schema."""
    return json.dumps(row, default=str) + "\n"
