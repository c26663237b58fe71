"""A server that speaks WebHDFS over a local folder, as a namenode and its datanode do. It starts no Hadoop."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_PREFIX = "/webhdfs/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path

    def log_message(self, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.place = self._local(unquote(url.path).removeprefix(_PREFIX))
        operation = self.query["op"].upper()
        if operation in ("CREATE", "APPEND", "OPEN") and "datanode" not in self.query:
            self._answer(307, b"", f"http://{self.headers['Host']}{self.path}&datanode=true")
            return
        try:
            getattr(self, f"_{operation.lower()}")()
        except FileNotFoundError as error:
            problem = {"exception": "FileNotFoundException", "message": str(error)}
            self._answer_json({"RemoteException": problem}, 404)

    do_GET = do_PUT = do_POST = do_DELETE = _serve

    def _local(self, path: str) -> Path:
        return self.root / path.strip("/")

    def _getfilestatus(self) -> None:
        self._answer_json({"FileStatus": self._status(self.place, "")})

    def _liststatus(self) -> None:
        if self.place.is_dir():
            found = [self._status(path, path.name) for path in sorted(self.place.iterdir())]
        else:
            found = [self._status(self.place, "")]
        self._answer_json({"FileStatuses": {"FileStatus": found}})

    def _open(self) -> None:
        offset, length = int(self.query.get("offset", 0)), self.query.get("length")
        data = self.place.read_bytes()[offset:]
        self._answer(200, data if length is None else data[: int(length)])

    def _create(self) -> None:
        self.place.parent.mkdir(parents=True, exist_ok=True)
        self.place.write_bytes(self.body)
        self._answer(201, b"")

    def _append(self) -> None:
        with self.place.open("ab") as file:
            file.write(self.body)
        self._answer(200, b"")

    def _mkdirs(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        self._answer_json({"boolean": True})

    def _rename(self) -> None:
        destination = self._local(self.query["destination"])
        may_rename = self.place.exists() and destination.parent.is_dir() and not destination.exists()
        if may_rename:
            self.place.rename(destination)
        self._answer_json({"boolean": may_rename})

    def _delete(self) -> None:
        exists = self.place.exists()
        if self.place.is_dir():
            shutil.rmtree(self.place)
        elif exists:
            self.place.unlink()
        self._answer_json({"boolean": exists})

    @staticmethod
    def _status(path: Path, name: str) -> dict[str, Any]:
        found = path.stat()
        return {
            "pathSuffix": name,
            "type": "DIRECTORY" if path.is_dir() else "FILE",
            "length": 0 if path.is_dir() else found.st_size,
            "modificationTime": int(found.st_mtime * 1000),
        }

    def _answer_json(self, content: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(content).encode())

    def _answer(self, status: int, body: bytes, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def run_webhdfs_server(root: Path) -> Iterator[str]:
    """Serve a folder. Yields ``HOST:PORT``."""
    handler = type("Handler", (_Handler,), {"root": root})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
