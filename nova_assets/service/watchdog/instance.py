"""Server instance that the watchdog keeps alive: one process, forked by gunicorn."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from gunicorn.workers.base import Worker

from nova_assets.masking import get_logger
from nova_assets.nova_error import NovaError
from nova_assets.service.http.server import Server

log = get_logger("nova_assets.service")

ServerFactory = Callable[[socket.socket], AbstractContextManager[Server]]
"""Opens a server that listens on a socket. The context closes everything that the server uses."""

_START_SECONDS = 120.0
"""Time limit for the start of an instance, and for its end after the last request."""

_RESTART_PAUSE = 2.0
"""Seconds that an instance waits before it ends because it could not start. The watchdog replaces it at once."""


class Instance(Worker):  # type: ignore[misc]  # gunicorn ships no types
    """Server process that proves its health by a heartbeat.

    The event loop of the server sends the heartbeat. So a process that is stopped, or whose event loop is blocked,
    sends none. After ``timeout`` seconds without a heartbeat, the watchdog kills and replaces the process.
    """

    alive: bool

    def __init__(self, age: int, ppid: int, sockets: Any, app: Any, timeout: float, cfg: Any, log: Any) -> None:
        # Gunicorn creates a file for the heartbeats there, in the watchdog. An error would end the watchdog.
        Path(cfg.worker_tmp_dir or tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)
        super().__init__(age, ppid, sockets, app, timeout, cfg, log)

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # For gunicorn, SIGQUIT ends a worker at once. Here, Ctrl-C lets requests in progress finish, as SIGTERM does.
        signal.signal(signal.SIGQUIT, lambda *_: signal.raise_signal(signal.SIGTERM))
        faulthandler.enable()  # the watchdog sends SIGABRT first: the log then shows where the process hangs

    def run(self) -> None:
        """Serve until the watchdog or a signal stops this process. Never returns.

        The process exits here, because the stack below belongs to the watchdog, from which the process was forked.
        """
        exit_code = 1
        try:
            self._serve(self.wsgi)
            exit_code = 0
        except NovaError as error:
            log.error("an instance of the service ends", extra={"error": error.render()})
        except BaseException as error:
            log.error("an instance of the service ends", exc_info=error)
        finally:
            if exit_code:
                threading.Event().wait(_RESTART_PAUSE)
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(exit_code)

    def _serve(self, open_server: ServerFactory) -> None:
        listening_socket = socket.socket(fileno=os.dup(self.sockets[0].fileno()))
        with contextlib.ExitStack() as stack:
            with self._beat_in_background():
                server = stack.enter_context(open_server(listening_socket))
            server.run(self._beat)
            with self._beat_in_background():
                stack.close()

    def _beat(self) -> None:
        self.notify()
        if self.alive and os.getppid() != self.ppid:
            self.alive = False
            log.warning("an instance of the service ends, because its watchdog has ended")
            signal.raise_signal(signal.SIGTERM)

    @contextlib.contextmanager
    def _beat_in_background(self) -> Iterator[None]:
        """Send heartbeats while the event loop does not run, for a limited time."""
        done = threading.Event()

        def beat() -> None:
            for _ in range(int(_START_SECONDS)):
                self.notify()
                if done.wait(1.0):
                    return

        threading.Thread(target=beat, name="nova-heartbeat", daemon=True).start()
        try:
            yield
        finally:
            done.set()
