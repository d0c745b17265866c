"""The workers that have joined: who may, who has gone, and what they say besides answering batches. For one thread."""

from __future__ import annotations

import json
import logging
from importlib.metadata import version
from typing import Any

from pytriton.cluster.batches import JoinedWorker, RemoteModel
from pytriton.cluster.dispatcher import Dispatcher
from pytriton.cluster.messages import (
    BYE,
    DERIVED,
    HELLO,
    LEAVE,
    NUMBER,
    OBSERVE,
    PROBE,
    PROGRESS,
    PROTOCOL,
    READY,
    REFUSED,
    REPORT,
    TAKEN,
    WELCOME,
    Parts,
    decode,
    is_frame,
)
from pytriton.cluster.router import Router
from pytriton.wire.frames import NO_REGION

__all__ = ["Members"]

LOGGER = logging.getLogger("pytriton.workers")

LOGGED_REFUSALS = 100  # of different workers; further ones are not logged
MOST_CREDITS = 2**16  # of a worker


class Members:
    """The workers of all models of an address.

    Args:
        router: Leads to the workers.
        dispatcher: Hands them batches.

    Attributes:
        models: Those that workers may join.
    """

    def __init__(self, router: Router, dispatcher: Dispatcher) -> None:
        self.models: list[RemoteModel] = []
        self._router = router
        self._dispatcher = dispatcher
        self._workers: dict[bytes, JoinedWorker] = {}
        self._refused: set[str] = set()

    def hear(self, message: Parts) -> None:
        """Act on a message of a worker; one that cannot be read loses its sender."""
        identity, first, *more = message
        worker = self._workers.get(identity)
        try:
            if worker is not None and is_frame(first):
                frame = decode([first, *more])
                busy_us = following = 0
                if len(more) > (frame.region != NO_REGION):
                    busy_us, following = PROGRESS.unpack(more[-1])
                    self._take(worker, following)
                self._dispatcher.take_reply(worker, frame, busy_us / 1e6)
                self._end_if_idle(worker)
            elif worker is not None and first == TAKEN:
                self._take(worker, NUMBER.unpack(more[0])[0])
            elif first == HELLO:
                self._welcome(identity, json.loads(bytes(more[0])))
            elif worker is not None:
                self._hear(worker, first, json.loads(bytes(more[0])))
        except Exception as error:  # whatever it sent: the others are served on
            LOGGER.debug("what a worker sent cannot be read", exc_info=True)
            self._refuse(identity, f"what it sent cannot be read: {error}", "a worker")

    def _take(self, worker: JoinedWorker, number: int) -> None:
        """The worker's callable is about to get a batch."""
        batch = worker.batches.get(number)
        if batch is not None:
            batch.taken = True

    def _hear(self, worker: JoinedWorker, kind: bytes, content: Any) -> None:
        model = worker.model
        if kind == REPORT:
            worker.reports.count(*content)
        elif kind == READY:
            worker.ready = True
            worker.credits = min(max(1, int(content["credits"])), MOST_CREDITS)
            worker.is_concurrent = bool(content["is_concurrent"])
            LOGGER.info("worker %s has joined", worker)
            self._observe(worker)
            model.on_change()
            self._dispatcher.limit(model)
            self._dispatcher.hand_out(model)
        elif kind == LEAVE:
            worker.leaving = True
            self._dispatcher.limit(worker.model)
            self._end_if_idle(worker)
            model.on_change()
        elif kind == DERIVED:
            model.derived = dict(content)
            model.on_change()

    def _welcome(self, identity: bytes, hello: dict[str, Any]) -> None:
        who = f"worker of model {hello.get('model')!r} on {hello.get('host')} (process {hello.get('process')})"
        if hello.get("protocol") != PROTOCOL:
            self._refuse(
                identity,
                f"it speaks version {hello.get('protocol')} of the protocol (pytriton {hello.get('package')}), this "
                f"side {PROTOCOL} (pytriton {version('pytriton')}); install the same version on both",
                who,
                final=True,
            )
            return
        model = next((model for model in self.models if model.matches(hello)), None)
        if model is None:
            have = ", ".join(f"{model.name} (version {model.version})" for model in self.models)
            self._refuse(identity, f"no such model listens here; there is: {have}", who)
            return
        worker = JoinedWorker(
            identity,
            model,
            str(hello["host"]),
            int(hello["process"]),
            str(hello.get("device") or ""),
            str(hello["package"]),
        )
        self._workers[identity] = model.workers[identity] = worker
        self._router.tell(identity, WELCOME, model.welcome)

    def _refuse(self, identity: bytes, reason: str, who: str, final: bool = False) -> None:
        """Tell a worker why it cannot join; it tries again, unless that is ``final``."""
        if who not in self._refused and len(self._refused) < LOGGED_REFUSALS:
            self._refused.add(who)
            LOGGER.warning("refused a %s: %s", who, reason)
        self._router.tell(identity, REFUSED, [reason, final])
        self._lose(identity)

    def observe(self, model: RemoteModel) -> None:
        """Have the workers of a model report their batches, if they are to be counted."""
        for worker in model.workers.values():
            if worker.ready:
                self._observe(worker)

    def _observe(self, worker: JoinedWorker) -> None:
        if worker.model.observation.metrics is not None:
            self._router.tell(worker.identity, OBSERVE)

    def probe(self) -> None:
        """Send each worker a message, which tells whether it is there."""
        for identity in self._workers:
            self._router.tell(identity, PROBE)

    def lose_gone(self) -> None:
        """Forget the workers that the router could not reach, and have others answer their batches."""
        while self._router.gone:
            self._lose(self._router.gone.pop())

    def _lose(self, identity: bytes) -> None:
        worker = self._workers.get(identity)
        if worker is not None:
            LOGGER.warning("worker %s is lost, with %d batches", worker, len(worker.batches))
            self._remove(worker)
            self._dispatcher.take_back(worker)

    def _end_if_idle(self, worker: JoinedWorker) -> None:
        if worker.leaving and not worker.batches and worker.identity in self._workers:
            LOGGER.info("worker %s has left", worker)
            self._remove(worker)
            self._router.tell(worker.identity, BYE)

    def _remove(self, worker: JoinedWorker) -> None:
        self._workers.pop(worker.identity, None)
        worker.model.workers.pop(worker.identity, None)
        self._dispatcher.limit(worker.model)
        worker.reports.cancel_all()
        worker.model.on_change()

    def dismiss(self, model: RemoteModel) -> None:
        """Tell the workers of a model that goes."""
        for worker in [*model.workers.values()]:
            self._router.tell(worker.identity, BYE)
            self._remove(worker)
