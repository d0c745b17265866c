"""The connections that the calls to one model use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pytriton.client.session import ModelSession
from pytriton.composition.connector import Connector
from pytriton.exceptions import PyTritonInvalidOperationError

__all__ = ["Connections"]

PREPARE_S = 60.0
PREPARE_AGAIN_S = 5.0
DOUBT_S = 1.0


class Connections:
    """The connections to the server that the calls to one model use, and what is known of the model.

    Args:
        connector: Returns what makes them, once the server's address is known, and None when it has gone; or None.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        model: str,
        connector: Callable[[], Connector | None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._connector = connector
        self._idle: dict[bool, list[Any]] = {False: [], True: []}
        self._of_loops: dict[bool, Any] = {}
        self._clock = clock
        self._made_at, self._doubted_at = clock(), -math.inf

    def __del__(self) -> None:
        for transports in self._idle.values():
            for transport in transports:
                transport.close()

    @cached_property
    def session(self) -> ModelSession:
        """What is known of the model. It is waited for longer in the first minute, as the server may be starting."""
        return self._new_session(max(PREPARE_AGAIN_S, PREPARE_S - (self._clock() - self._made_at)))

    def doubt_model(self) -> None:
        """Ask for the model's configuration again at the next call, at most once a second: it may be another model."""
        now = self._clock()
        if now - self._doubted_at > DOUBT_S:
            self._doubted_at, self.session = now, self._new_session(PREPARE_AGAIN_S)

    def _new_session(self, wait_s: float) -> ModelSession:
        return ModelSession(
            self._model,
            None,
            init_timeout_s=wait_s,
            inference_timeout_s=math.inf,
            model_config=None,
            model_ready=False,
        )

    @cached_property
    def secret(self) -> str:
        """As that of :class:`Connector`."""
        return self._connected().secret

    def take(self, *, streams: bool = False) -> Any:
        """A transport for this thread, until :meth:`give_back`."""
        try:
            return self._idle[streams].pop()
        except IndexError:
            return self._connected().transport(streams=streams)

    def give_back(self, transport: Any, *, streams: bool = False) -> None:
        """End the use of a transport."""
        transport.check = None
        self._idle[streams].append(transport)

    def of_loops(self, *, streams: bool = False) -> Any:
        """The transport for event loops."""
        if streams not in self._of_loops:
            self._of_loops[streams] = self._connected().async_transport(streams=streams)
        return self._of_loops[streams]

    def _connected(self) -> Connector:
        connector = None if self._connector is None else self._connector()
        if connector is None:
            raise PyTritonInvalidOperationError(
                f"model {self._model!r} cannot be called: this process does not know the address of the server, or the "
                "server has ended"
            )
        return connector
