"""The socket that workers connect to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import zmq

from pytriton.cluster.keys import secure_server
from pytriton.cluster.messages import Parts, configure, has_message, receive, send
from pytriton.exceptions import PyTritonWorkerError
from pytriton.pool.remote_workers import RemoteWorkers

__all__ = ["Router"]

SMALL_PARTS = 2  # of what workers send: their identity, and a frame or a word


class Router:
    """Listens for workers. For one thread. Nothing that it sends waits: credits limit what is on its way.

    Args:
        options: The address, keys and heartbeat. Port 0 is any free one.

    Attributes:
        address: Where it listens.
        gone: Identities of workers that a message could not be sent to.

    Raises:
        PyTritonWorkerError: It cannot listen there.
    """

    def __init__(self, options: RemoteWorkers) -> None:
        self.address = options.listen
        self.gone: set[bytes] = set()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._authenticator: Any = None
        self._has_sent = True  # since one has looked for messages
        try:
            configure(self._socket, options.heartbeat_s)
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            if options.key is not None and options.worker_keys is not None:
                self._authenticator = secure_server(
                    self._context, self._socket, Path(options.key), Path(options.worker_keys)
                )
            self._socket.bind(options.listen)
            endpoint = self._socket.get(zmq.LAST_ENDPOINT)
            assert isinstance(endpoint, bytes)
            if options.listen.endswith(":0"):
                self.address = endpoint.rstrip(b"\0").decode()
        except zmq.ZMQError as error:
            self.close()
            raise PyTritonWorkerError(f"remote workers cannot connect: {options.listen}: {error}") from error
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """A descriptor that becomes readable when something arrives, but may not be while something is there."""
        return int(self._socket.FD)

    def has_arrived(self) -> bool:
        """Whether there may be a message that the descriptor does not tell of, because sending has noticed it."""
        return self._has_sent and self._look()

    def _look(self) -> bool:
        self._has_sent = False
        return has_message(self._socket)

    def receive(self) -> Parts | None:
        """The next message that has arrived, with the identity of its sender as first part; None if there is none."""
        return receive(self._socket, SMALL_PARTS) if self._look() else None

    def send(self, identity: bytes, parts: Parts) -> None:
        """Send a message; if the worker has gone, note that in ``gone``."""
        self._has_sent = True
        try:
            send(self._socket, [identity, *parts])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.gone.add(identity)

    def tell(self, identity: bytes, kind: bytes, content: Any = None) -> None:
        """Send a message that is no frame; ``content`` travels as JSON."""
        self.send(identity, [kind, json.dumps(content).encode()])

    def close(self) -> None:
        """Stop listening."""
        self._socket.close(0)
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()
