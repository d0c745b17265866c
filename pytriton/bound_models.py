"""The models bound to one server: loaded, watched, unloaded."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import count

from tritonclient.utils import InferenceServerException

from pytriton.exceptions import PyTritonInvalidOperationError
from pytriton.model import Model
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.server.control import REFUSED, ModelControl
from pytriton.utils.workspace import Workspace

LOGGER = logging.getLogger("pytriton.triton")

MOST_LOADS = 8  # at once
QUIET_S = 1.0
POLL_S = 0.02
ASK_S = 0.1


class BoundModels:
    """Models, in the order in which they were bound. Its owner sees to it that one thread changes it at a time.

    Args:
        workspace: For the models' files and sockets.
        on_disconnect: Called when the server's side of one of a model's instances has gone.
        on_unrecoverable: Called when a callable asks to stop the server.
        on_loaded: Called when the server has loaded a model.
    """

    def __init__(
        self,
        workspace: Workspace,
        on_disconnect: Callable[[Model], None],
        on_unrecoverable: Callable[[], None],
        on_loaded: Callable[[Model], None] = lambda _: None,
    ) -> None:
        self._store = workspace.model_store_path
        self._sockets = workspace.path / "sockets"
        self._sockets.mkdir(mode=0o700)
        self._on_disconnect = on_disconnect
        self._on_unrecoverable = on_unrecoverable
        self._on_loaded = on_loaded
        self._numbers = count()
        self._models: list[Model] = []

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models))

    def check_beside(self, config: TritonModelConfig, replaced: Collection[Model] = ()) -> None:
        """Raise unless another model can be served next to these; raises as :meth:`Model.check_beside`.

        Args:
            config: Of the other model.
            replaced: Those of these that it replaces.
        """
        for model in self._models:
            if model not in replaced:
                model.check_beside(config)

    def replaced_by(self, config: TritonModelConfig) -> list[Model]:
        """The model of the same name and version, if there is one."""
        this = config.model_name, config.model_version
        return [model for model in self._models if (model.name, model.version) == this]

    def add(self, model: Model) -> None:
        """Take a model in."""
        self._models.append(model)

    def versions(self, name: str, version: int | None) -> list[Model]:
        """The versions of a model, or the one that is asked for.

        Raises:
            PyTritonInvalidOperationError: There is none.
        """
        found = [model for model in self._models if model.name == name and version in (None, model.version)]
        if not found:
            what = f"model {name!r}" if version is None else f"version {version} of model {name!r}"
            names = ", ".join(sorted({repr(model.name) for model in self._models})) or "none"
            raise PyTritonInvalidOperationError(f"{what} is not bound; bound models are: {names}")
        return found

    def names(self, *, loaded: bool = False) -> list[str]:
        """Of all models, or of those that the server was asked to serve."""
        return sorted({model.name for model in self._models if model.loaded or not loaded})

    def are_connected(self) -> bool:
        """Whether each model that the server is to serve has its proxies."""
        return all(model.is_connected() for model in self if model.is_served_beside(self._models))

    def start(self, models: Iterable[Model]) -> None:
        """Write models' files and start their workers, so that a server can load them."""
        for model in models:
            if not model.started:
                sockets = self._sockets / str(next(self._numbers))
                model.start(self._store, sockets, self._on_disconnect, self._on_unrecoverable)

    def is_lost(self, model: Model) -> bool:
        """Whether the server was asked to serve a model, should have it, and has no proxy of it."""
        return (
            model.loaded and model in self._models and not model.is_connected() and model.is_served_beside(self._models)
        )

    def load(self, control: ModelControl, preloaded: Collection[str] = ()) -> None:
        """Load the models that are not loaded yet, at once; those that the server refuses are forgotten.

        Args:
            control: Of the server.
            preloaded: Names of models that it has loaded while it started.

        Raises:
            InferenceServerException: The server refused one.
        """
        by_name: dict[str, list[Model]] = defaultdict(list)
        for model in self._models:
            if not model.loaded:
                by_name[model.name].append(model)
        _call_at_once(
            [partial(self._load_versions, control, versions, name in preloaded) for name, versions in by_name.items()]
        )

    def _load_versions(self, control: ModelControl, models: Sequence[Model], is_preloaded: bool) -> None:
        try:
            self.start(models)
            if not is_preloaded:
                control.load(models[0].name)
            for model in models:
                if not model.is_served_beside(self._models):
                    LOGGER.warning("model %s: its version policy leaves version %d out", model.name, model.version)
                elif not control.is_model_ready(model.name, model.version):
                    raise InferenceServerException(f"model {model.name!r}, version {model.version}, did not get ready")
        except BaseException:
            for model in models:
                self.remove(model)
            raise
        for model in models:
            model.loaded = True
            LOGGER.info(control.announcement(model.config))
            self._on_loaded(model)

    def reload(self, control: ModelControl, preloaded: Collection[str] = ()) -> None:
        """Load all models into a server that has none of them any more; arguments as for :meth:`load`.

        Raises:
            InferenceServerException: The server refused one.
        """
        names = [name for name in self.names(loaded=True) if name not in preloaded]
        _call_at_once([partial(control.load, name) for name in names])

    def unload(
        self, control: ModelControl, models: Sequence[Model], timeout_s: float, is_idle: Callable[[], bool]
    ) -> None:
        """Have the server refuse new requests to versions of one model, answer those it has, and forget them.

        They are forgotten even if the server refuses, or has gone.

        Args:
            control: Of the server.
            models: The versions.
            timeout_s: Requests may take so long.
            is_idle: As for :func:`wait_drained`.
        """
        name = models[0].name
        rest = [model for model in self._models if model.name == name and model.loaded and model not in models]
        for model in models:
            model.loaded = False
        try:
            if rest:
                for model in models:
                    model.remove_files()
                control.load(name)  # it finds some versions gone
            else:
                control.unload(name)
            if not wait_drained(control, models, time.monotonic() + timeout_s, is_idle):
                LOGGER.warning("model %s: its requests in flight were ended after %.0f s", name, timeout_s)
        finally:
            for model in models:
                self.remove(model)

    def remove(self, model: Model) -> None:
        """End a model's workers, remove its files and forget it."""
        model.close()
        self._models.remove(model)

    def wait_drained(self, control: ModelControl, deadline: float, is_idle: Callable[[], bool]) -> bool:
        """Wait until the unloaded models have answered all requests; as :func:`wait_drained`."""
        return wait_drained(control, self._models, deadline, is_idle)

    def interrupt(self) -> None:
        """End what somebody waits for, as :meth:`Model.interrupt`. From any thread."""
        for model in self:
            model.interrupt()

    def disconnect(self) -> None:
        """End all workers, each when its callable has returned. From any thread."""
        for model in self:
            model.disconnect()

    def clear(self) -> None:
        """Forget the models."""
        self._models.clear()


def _call_at_once(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls in parallel, up to MOST_LOADS at a time, and return when all have ended.

    The executors of :mod:`concurrent.futures` take no work once the main thread has ended, though others go on.

    Raises:
        Exception: What the first of those that failed has raised.
    """
    errors: list[Exception | None] = [None] * len(calls)
    waiting = iter(enumerate(calls))

    def work() -> None:
        for index, call in waiting:
            try:
                call()
            except Exception as error:
                errors[index] = error

    helpers = [
        threading.Thread(target=work, name=f"pytriton-load-{number}", daemon=True)
        for number in range(1, min(len(calls), MOST_LOADS))
    ]
    for helper in helpers:
        helper.start()
    try:
        work()
    finally:
        for helper in helpers:
            helper.join()
    for error in filter(None, errors):
        raise error


def wait_drained(control: ModelControl, models: Sequence[Model], deadline: float, is_idle: Callable[[], bool]) -> bool:
    """Wait until models that the server unloads have answered all requests that it had accepted.

    The server says so by ending the proxies, and by what it says of the models. It never does while a client keeps a
    gRPC stream open, or after one was cancelled in an unlucky moment; and it does so 1 s late with the Python proxy. So
    it is also enough if the instances have had nothing to do for a second and nothing else is under way.

    Args:
        control: Of the server.
        models: Those that were unloaded.
        deadline: In :func:`time.monotonic` seconds.
        is_idle: Whether nothing is under way, as far as can be seen from outside.

    Returns:
        False at the deadline.
    """
    delay_s = max((model.queue_delay_s() for model in models), default=0.0)
    next_question = time.monotonic() + ASK_S
    while not all(model.wait_disconnected(0.0) for model in models):
        if _are_quiet(models, QUIET_S + delay_s) and is_idle():
            break
        now = time.monotonic()
        if now > deadline or not any(model.is_alive() for model in models):  # ended by a second signal
            return False
        if now > next_question:
            next_question = now + ASK_S
            if _are_unloaded(control, models):
                break
        soon = min(deadline, time.monotonic() + POLL_S)
        all(model.wait_disconnected(soon) for model in models)
    return True


def _are_quiet(models: Sequence[Model], seconds: float) -> bool:
    return all(model.quiet_s() > seconds for model in models)


def _are_unloaded(control: ModelControl, models: Sequence[Model]) -> bool:
    try:
        return all(control.is_unloaded(model.name, model.version) for model in models)
    except REFUSED:  # it ends, and its proxies with it
        return False
