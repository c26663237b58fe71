"""A real Hive metastore for the tests: the standalone metastore of Hive 3.1, with Derby in a folder.

Its own jars come from Maven Central (14 MB), by Ivy, which PySpark brings. Hadoop, Derby and DataNucleus are those of
PySpark. The server is stopped when the tests end, and by itself if they are killed: it ends with its standard input.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from nova_assets.engine.session.java import find_java
from nova_assets_tests.ivy import JarsUnavailable, fetch_jars

JARS = {
    "org.apache.hive": {"hive-standalone-metastore": "3.1.3"},
    "org.apache.hive.hcatalog": {"hive-hcatalog-server-extensions": "3.1.3"},  # the listener of the notification log
    "org.apache.thrift": {"libthrift": "0.9.3"},
    "com.google.guava": {"guava": "19.0"},
    "com.jolbox": {"bonecp": "0.8.0.RELEASE"},
    "commons-collections": {"commons-collections": "3.2.2"},
    "org.codehaus.jackson": {"jackson-mapper-asl": "1.9.13", "jackson-core-asl": "1.9.13"},
}

OF_PYSPARK = (
    *(
        "hadoop-client-*",
        "derby*",
        "datanucleus*",
        "javax.jdo*",
        "jdo-api*",
        "HikariCP*",
        "antlr-runtime*",
        "commons-*",
    ),
    *("dropwizard*", "jackson-*", "libfb303*", "log4j*", "slf4j*", "jcl*", "metrics*", "hive-storage-api*"),
)

LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"


JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-Dderby.system.durability=test")

DATABASE = "derby"

LOCK_TABLES = """
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE HIVE_LOCKS (
    HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint NOT NULL,
    HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767),
    HL_LOCK_STATE char(1) NOT NULL, HL_LOCK_TYPE char(1) NOT NULL,
    HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint,
    HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer,
    HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint,
    PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID)
);
CREATE TABLE AUX_TABLE (
    MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255), PRIMARY KEY (MT_KEY1, MT_KEY2)
);
"""
"""Tables of Hive's locks, which PyIceberg takes. Hive's own script makes them; the metastore itself does not."""


class NoMetastore(Exception):
    """There is no metastore here to test with; the message says why."""


@contextmanager
def server(folder: Path, *, notification_log: bool = True) -> Iterator[str]:
    """Run a metastore and give its address. It has a database ``shop``.

    Args:
        folder: for its jars, its settings and its log.
        notification_log: whether it keeps a log that every client may read. Otherwise it refuses to read a log.

    Raises:
        NoMetastore: its jars cannot be fetched, or it does not start.
    """
    java = str(find_java().home / "bin" / "java")
    try:
        jars = fetch_jars(JARS, folder / "jars")
    except JarsUnavailable as error:
        raise NoMetastore(f"jars of Hive: {error}") from error
    port = _free_port()
    _write_settings(folder, notification_log)
    _make_lock_tables(java, folder)
    classpath = os.pathsep.join([str(folder), *map(str, jars), *map(str, _jars_of_pyspark())])
    command = [java, *JAVA_OPTIONS, "-Xmx512m", "-cp", classpath]
    command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    with (folder / "metastore.log").open("wb") as log:
        # A shell that waits for its standard input ends the server when the tests end, however they do.
        watched = ["sh", "-c", '"$@" </dev/null & server=$!; cat >/dev/null; kill -9 $server', "metastore", *command]
        process = subprocess.Popen(
            watched, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + 90
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > until:
                raise NoMetastore((folder / "metastore.log").read_text(errors="replace")[-3000:])
            time.sleep(0.2)
        address = f"thrift://127.0.0.1:{port}"
        _make_database(address, notification_log)
        yield address
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


@contextmanager
def client(address: str) -> Iterator[Any]:
    """A plain client, for what another system does in the metastore."""
    from hive_metastore import ThriftHiveMetastore
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol
    from thrift.transport import TSocket, TTransport

    host, _, port = address.removeprefix("thrift://").partition(":")
    transport = TTransport.TBufferedTransport(TSocket.TSocket(host, int(port)))
    transport.open()
    try:
        yield ThriftHiveMetastore.Client(TBinaryProtocol(transport))
    finally:
        transport.close()


class Line:
    """A way to a metastore that can be cut: it listens on a port of its own and forwards to the server."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("thrift://").partition(":")
        self.target = (host, int(port))
        self.is_cut = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"thrift://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                if self.is_cut:
                    client.close()
                    continue
                server = socket.create_connection(self.target)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink:
            while (data := source.recv(65536)) and not self.is_cut:
                sink.sendall(data)
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)


SPARK = """
import json, sys
from pyspark.sql import SparkSession
from nova_assets.engine.session.spark_session import prepare_environment

prepare_environment()
settings = {
    "spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": sys.argv[1],
    "spark.sql.warehouse.dir": sys.argv[2], "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
    "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict", "spark.sql.session.timeZone": "UTC",
}
session = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
session.sparkContext.setLogLevel("ERROR")
print("READY", flush=True)
for line in sys.stdin:
    try:
        session.catalog.clearCache()
        rows = [[str(v) if v is not None else None for v in r] for r in session.sql(json.loads(line)).collect()]
        answer = {"rows": rows}
    except Exception as error:
        answer = {"error": str(error)}
    print("ANSWER " + json.dumps(answer), flush=True)
"""


class SparkWithHive:
    """A Spark with Hive support in a process of its own, which knows tables by the metastore alone."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log

    def sql(self, statement: str) -> list[tuple[str | None, ...]]:
        """Rows of a statement, each value as text."""
        assert self.process.stdin is not None
        print(json.dumps(" ".join(statement.split())), file=self.process.stdin, flush=True)
        answer = json.loads(self.answer("ANSWER "))
        assert "error" not in answer, answer["error"]
        return [tuple(row) for row in answer["rows"]]

    def answer(self, prefix: str) -> str:
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if line.startswith(prefix)), None)
        assert line is not None, self.log.read_text(errors="replace")[-3000:]
        return line.removeprefix(prefix)


@contextmanager
def spark_with_hive(address: str, folder: Path) -> Iterator[SparkWithHive]:
    """Start a Spark that uses the metastore as its catalog."""
    folder.mkdir()
    (folder / "spark.py").write_text(SPARK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with (folder / "spark.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "spark.py", address, str(folder / "warehouse")],
            cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        spark = SparkWithHive(process, folder / "spark.log")
        spark.answer("READY")
        yield spark
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()


def _jars_of_pyspark() -> list[Path]:
    folder = Path(pyspark.__file__).parent / "jars"
    return [jar for pattern in OF_PYSPARK for jar in sorted(folder.glob(f"{pattern}.jar"))]


def _make_database(address: str, notification_log: bool) -> None:
    from hive_metastore.ttypes import Database

    with client(address) as metastore:
        if notification_log:
            metastore.get_current_notificationEventId()  # makes the table that the listener expects
        metastore.create_database(Database(name="shop", description="", parameters={}))
        assert "shop" in metastore.get_all_databases()


def _make_lock_tables(java: str, folder: Path) -> None:
    (folder / "locks.sql").write_text(f"CONNECT 'jdbc:derby:{folder / DATABASE};create=true';{LOCK_TABLES}")
    derby = os.path.pathsep.join(str(jar) for jar in _jars_of_pyspark() if jar.name.startswith("derby"))
    command = [java, *JAVA_OPTIONS, "-cp", derby, "org.apache.derby.tools.ij", "locks.sql"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode != 0 or "ERROR" in done.stdout:
        raise NoMetastore(done.stdout + done.stderr)


def _write_settings(folder: Path, notification_log: bool) -> None:
    settings = {
        "metastore.thrift.uris": "",
        "metastore.warehouse.dir": str(folder / "warehouse"),
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder / DATABASE};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.transactional.event.listeners": LISTENER if notification_log else "",
        "metastore.metastore.event.db.notification.api.auth": str(not notification_log).lower(),
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    (folder / "metastore-site.xml").write_text(f"<configuration>{properties}</configuration>")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
