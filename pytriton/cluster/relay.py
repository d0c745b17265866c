"""The program's side of proxies on another machine: one thread that listens, and two for each proxy."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pytriton import forks
from pytriton.cluster.joined import Joined
from pytriton.cluster.keys import load_key
from pytriton.cluster.messages import BYE, HELLO, PROBE, PROTOCOL, REFUSED, Parts, decode, is_frame
from pytriton.cluster.router import Router
from pytriton.pool.remote_workers import ProxyListener

__all__ = ["PROXY_FILES", "ProxyRelay"]

LOGGER = logging.getLogger("pytriton.triton")

PROXY_FILES = "__init__.py", "channel.py", "messages.py", "proxy.py"  # of this package; they run in the server
PROBE_S = 0.2
LOGGED_REFUSALS = 100
_SOCKET = re.compile(r"\d+\.\d+")


class ProxyRelay:
    """Listens for proxies on another machine, and connects each to the socket of its model instance on this one.

    So an instance serves such a proxy as any other. All methods are thread-safe.

    Args:
        options: Where to listen, and who may connect.
        sockets: Folder of the instances' sockets.

    Attributes:
        description: What a proxy has to know to connect; for JSON.

    Raises:
        PyTritonWorkerError: It cannot listen there.
        PyTritonBadParameterError: There is no key in a file.
    """

    def __init__(self, options: ProxyListener, sockets: Path) -> None:
        self._sockets = sockets
        self._lock = threading.Lock()  # of the router, which one thread may use at a time
        self._router = Router(options.listen, options.heartbeat_s, options.key, options.proxy_keys)
        self._joined: dict[bytes, Joined] = {}
        self._refused: set[str] = set()
        self._stopped = self._closed = False
        self._next_probe = 0.0
        try:
            program_key = None if options.key is None else load_key(Path(options.key), secret=True)[0].decode()
        except BaseException:
            self._router.close()
            raise
        self.description = {
            "address": options.address or self._router.address,
            "key": None if options.proxy_key is None else str(options.proxy_key),
            "program_key": program_key,
            "heartbeat_s": options.heartbeat_s,
            "relay": uuid4().hex,
        }
        self._waking = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.epoll()
        self._poll.register(self._router.fileno(), select.EPOLLIN)
        self._poll.register(self._waking, select.EPOLLIN)
        forks.register(self)
        self._thread = threading.Thread(target=self._run, name=f"pytriton-{self._router.address}", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        """In a forked child there is no thread, and pyzmq leaves the parent's sockets alone."""
        for joined in self._joined.values():
            joined.after_fork()
        self._joined.clear()
        self._stopped = self._closed = True

    def is_alive(self) -> bool:
        """Whether it listens: it is not closed, and has not failed."""
        return not self._stopped

    def close(self) -> None:
        """Stop listening; the proxies' requests fail."""
        if not self._closed:
            self._stopped = self._closed = True
            os.eventfd_write(self._waking, 1)
            self._thread.join()
            os.close(self._waking)

    def _send(self, identity: bytes, parts: Parts) -> None:
        """Send a message to a proxy; if it has gone, the relay's thread notices."""
        with self._lock:
            if not self._stopped:
                self._router.send(identity, parts)
                if self._router.has_arrived():  # of which the descriptor tells no more
                    os.eventfd_write(self._waking, 1)

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._turn()
        except BaseException:
            LOGGER.exception("the connection to proxies on another machine has failed; their models are not served")
        finally:
            self._stopped = True
            for identity in [*self._joined]:
                self._end(identity, dismissed=False)
            with self._lock:
                self._router.close()
            self._poll.close()

    def _turn(self) -> None:
        """Wait for messages, and act on those that have come."""
        if any(descriptor == self._waking for descriptor, _ in self._poll.poll(PROBE_S)):
            os.eventfd_read(self._waking)
        while (message := self._next_message()) is not None:
            self._hear(*message)
        if (now := time.monotonic()) >= self._next_probe:
            self._next_probe = now + PROBE_S
            for identity, joined in self._joined.items():
                self._send(identity, [PROBE])
                joined.release()
        with self._lock:
            gone, self._router.gone = self._router.gone, set()
        for identity in gone:
            self._end(identity, dismissed=False)

    def _next_message(self) -> Parts | None:
        with self._lock:
            return self._router.receive()

    def _hear(self, identity: bytes, first: bytes, *more: Any) -> None:
        joined = self._joined.get(identity)
        try:
            if joined is not None and is_frame(first):
                joined.take(decode([first, *more]))
            elif first == BYE:
                self._end(identity, dismissed=True)
            elif first == HELLO and joined is None:
                self._welcome(identity, json.loads(bytes(more[0])))
        except Exception as error:  # whatever it sent: the others are served on
            LOGGER.debug("what a proxy sent cannot be read", exc_info=True)
            self._refuse(identity, f"what it sent cannot be read: {error}", "unknown")
            self._end(identity, dismissed=False)

    def _welcome(self, identity: bytes, hello: dict[str, Any]) -> None:
        who = f"for model {hello['model']!r} on {hello['host']}"
        if hello["protocol"] != PROTOCOL or hello["relay"] != self.description["relay"]:
            self._refuse(identity, "another program had its model loaded", who)
            return
        if not _SOCKET.fullmatch(hello["socket"]):
            raise ValueError(f"{hello['socket']!r} is no name of a socket")
        self._joined[identity] = Joined(str(self._sockets / hello["socket"]), hello, partial(self._send, identity))
        LOGGER.debug("a proxy %s has joined", who)

    def _refuse(self, identity: bytes, reason: str, who: str) -> None:
        if who not in self._refused and len(self._refused) < LOGGED_REFUSALS:
            self._refused.add(who)
            LOGGER.warning("refused a proxy %s: %s", who, reason)
        self._send(identity, [REFUSED, json.dumps(reason).encode()])

    def _end(self, identity: bytes, dismissed: bool) -> None:
        joined = self._joined.pop(identity, None)
        if joined is not None:
            joined.close(dismissed)
