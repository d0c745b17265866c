"""The socket that workers, or proxies on other machines, connect to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import zmq

from pytriton.cluster.keys import secure_server
from pytriton.cluster.messages import Parts, configure, has_message, receive, send
from pytriton.exceptions import PyTritonWorkerError

__all__ = ["Router"]

SMALL_PARTS = 2  # of what workers send: their identity, and a frame or a word


class Router:
    """Listens for peers: workers or proxies. For one thread at a time.

    Nothing that it sends waits: credits limit what is on its way.

    Args:
        listen: The address. Port 0 is any free one.
        heartbeat_s: Seconds between two heartbeats.
        key: File with this side's secret key; None is no encryption.
        peer_keys: Folder with the public keys of those who may connect.

    Attributes:
        address: Where it listens.
        gone: Identities of peers that a message could not be sent to.

    Raises:
        PyTritonWorkerError: It cannot listen there.
    """

    def __init__(
        self, listen: str, heartbeat_s: float, key: str | Path | None = None, peer_keys: str | Path | None = None
    ) -> None:
        self.address = listen
        self.gone: set[bytes] = set()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._authenticator: Any = None
        self._has_sent = True  # since one has looked for messages
        try:
            configure(self._socket, heartbeat_s)
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            if key is not None and peer_keys is not None:
                self._authenticator = secure_server(self._context, self._socket, Path(key), Path(peer_keys))
            self._socket.bind(listen)
            endpoint = self._socket.get(zmq.LAST_ENDPOINT)
            assert isinstance(endpoint, bytes)
            if listen.endswith(":0"):
                self.address = endpoint.rstrip(b"\0").decode()
        except zmq.ZMQError as error:
            self.close()
            raise PyTritonWorkerError(f"cannot listen on {listen}: {error}") from error
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
        """Send a message; if the peer has gone, note that in ``gone``."""
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
