"""Client of a Hive metastore: the calls that nova makes, with nova's errors.

The generated Thrift code is the one that PyIceberg ships, so nova and PyIceberg talk to a metastore in the same way
(decision 0080).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nova_assets.errors import NotSupported
from nova_assets.model.external_table import MetastoreTable
from nova_assets.nova_error import NovaError

CONNECT_TIMEOUT = 10
"""Seconds within which a metastore must accept a connection."""

CALL_TIMEOUT = 300
"""Seconds within which a metastore must answer a call. Changing many partitions in one call takes long."""

PARTITIONS_PER_READ = 500
"""Number of partitions that are fetched by one call."""


class HiveMetastore:
    """An open connection to a metastore, for one table.

    Args:
        client: client of the generated Thrift code.
        types: module with the generated types.
        table: the table.
    """

    def __init__(self, client: Any, types: Any, table: MetastoreTable) -> None:
        self.client = client
        self.types = types
        self.table = table
        self._names = (table.database, table.name)

    def load_table(self) -> Any:
        """Description of the table; None if the table or its database does not exist."""
        from thrift.Thrift import TApplicationException

        try:
            try:
                return self.client.get_table_req(self.types.GetTableRequest(*self._names)).table
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                return self.client.get_table(*self._names)  # an older server does not know the call
        except self.types.NoSuchObjectException:
            return None

    def has_database(self) -> bool:
        return self.table.database in self.client.get_all_databases()

    def partition_names(self) -> list[str]:
        return list(self.client.get_partition_names(*self._names, -1))

    def partitions(self) -> list[Any]:
        """All partitions, with their locations."""
        names = self.partition_names()
        return [
            p
            for n in range(0, len(names), PARTITIONS_PER_READ)
            for p in self.client.get_partitions_by_names(*self._names, names[n : n + PARTITIONS_PER_READ])
        ]

    def partition(self, values: Sequence[str]) -> Any | None:
        """Partition with these values; None if there is none."""
        try:
            return self.client.get_partition(*self._names, list(values))
        except self.types.NoSuchObjectException:
            return None

    def current_event_id(self) -> int | None:
        """Id of the newest event of the notification log; None if the metastore keeps no log for this user."""
        from thrift.Thrift import TApplicationException

        try:
            event_id = int(self.client.get_current_notificationEventId().eventId)
        except TApplicationException:  # the server refuses the call, or does not know it
            return None
        return event_id or None  # 0: nothing is ever recorded

    def events_after(self, event_id: int, limit: int) -> list[Any]:
        """Events of all tables after an event, oldest first."""
        request = self.types.NotificationEventRequest(lastEvent=event_id, maxEvents=limit)
        return list(self.client.get_next_notification(request).events or ())

    def server_id(self) -> str:
        """Identity of the metastore's database; empty if the metastore has none, as before Hive 3."""
        from thrift.Thrift import TApplicationException

        try:
            return str(self.client.get_metastore_db_uuid())
        except TApplicationException:
            return ""

    def create_table(self, description: Any) -> None:
        self.client.create_table(description)

    def alter_table(self, description: Any) -> None:
        """Change the description of the table. The metastore does not list its files."""
        context = self.types.EnvironmentContext({"DO_NOT_UPDATE_STATS": "true"})
        self.client.alter_table_with_environment_context(*self._names, description, context)

    def add_partitions(self, partitions: Sequence[Any]) -> None:
        """Add partitions in one transaction. Partitions that exist stay as they are."""
        request = self.types.AddPartitionsRequest(*self._names, list(partitions), ifNotExists=True, needResult=False)
        self.client.add_partitions_req(request)

    def alter_partitions(self, partitions: Sequence[Any]) -> None:
        """Change partitions in one transaction. The metastore does not list their files."""
        context = self.types.EnvironmentContext({"DO_NOT_UPDATE_STATS": "true"})
        self.client.alter_partitions_with_environment_context(*self._names, list(partitions), context)

    def drop_partition(self, values: Sequence[str]) -> None:
        """Forget a partition. Its files stay. A missing partition is ignored."""
        try:
            self.client.drop_partition(*self._names, list(values), False)
        except self.types.NoSuchObjectException:
            return

    def drop_table(self) -> None:
        """Forget the table. Its files stay."""
        self.client.drop_table(*self._names, False)


@contextmanager
def open_metastore(
    table: MetastoreTable, unavailable: type[NovaError], next_step: str, fields: Mapping[str, str]
) -> Iterator[HiveMetastore]:
    """Connect to the metastore of a table.

    Args:
        unavailable: error to raise if the metastore does not answer, or refuses a call.
        next_step: what a person should do then.
        fields: fields of the error.

    Raises:
        NotSupported: the client is not installed.
    """
    try:
        from hive_metastore import ThriftHiveMetastore, ttypes
        from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
        from thrift.Thrift import TException
        from thrift.transport import TSocket, TTransport
    except ModuleNotFoundError as error:
        raise NotSupported(
            "a Hive metastore needs its client, which is not installed",
            found=str(error),
            next="pip install 'nova-assets[hive]'",
        ) from error
    socket = TSocket.TSocket(table.host, table.port)
    socket.setTimeout(CONNECT_TIMEOUT * 1000)
    transport = TTransport.TBufferedTransport(socket)
    try:
        transport.open()
        socket.setTimeout(CALL_TIMEOUT * 1000)
        yield HiveMetastore(
            ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=True)), ttypes, table
        )
    except (TException, OSError, EOFError) as error:
        raise unavailable(
            f"the Hive metastore {table.metastore} does not answer, or refuses a call",
            found=_describe_error(error),
            expected=f"a metastore that knows the database {table.database}",
            next=next_step,
            **fields,
        ) from error
    finally:
        transport.close()


def _describe_error(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error).split("\n", 1)[0]
    return f"{type(error).__name__}: {text}"
