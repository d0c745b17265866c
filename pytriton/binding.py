"""The models bound to one server: what is bound, what the server has loaded, and what it has to load or to unload."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import count

from pytriton.exceptions import (
    PyTritonBadParameterError,
    PyTritonInvalidOperationError,
    PyTritonModelControlError,
    PyTritonValidationError,
)
from pytriton.logs import get_logger
from pytriton.model import Model
from pytriton.model_config.model_config import SpecificVersions, VersionPolicy
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_spec import ModelSpec
from pytriton.server.model_server import ModelServer
from pytriton.utils.workspace import Workspace
from pytriton.worker.context import current_binding

__all__ = ["ModelRegistry", "call_in_parallel"]

LOGGER = get_logger("pytriton.triton")

PARALLEL_LOADS = 8
UNLOAD_TIMEOUT_S = 30.0
QUIET_S = 1.0
POLL_S = 0.02
STATE_POLL_S = 0.1
KEPT = "sockets/*", "http/rest.sock", "http/counters"  # what this process has in the workspace beside models' files


class ModelRegistry:
    """Models, in the order in which they were bound.

    Args:
        workspace: For the models' files and sockets.
        on_unrecoverable: Called when a callable asks to stop the server.

    Attributes:
        sockets: Folder of the sockets of model instances.
        on_disconnect: Called when the server's side of an instance has disconnected, with its model.
        cleared: Set when all models are forgotten, for good.
    """

    def __init__(
        self,
        workspace: Workspace,
        on_unrecoverable: Callable[[], None],
    ) -> None:
        self._workspace = workspace
        self._store = workspace.model_store_path
        self.sockets = workspace.path / "sockets"
        self.sockets.mkdir(mode=0o700)
        self._on_unrecoverable = on_unrecoverable
        self.on_disconnect: Callable[[Model], None] = lambda model: None
        self.cleared = threading.Event()
        self._numbers = count()
        self._models: list[Model] = []
        self._by_name: dict[str, list[Model]] = defaultdict(list)  # the same, by lower-case name

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models))

    def bind(self, spec: ModelSpec, ignored: Iterable[str], replace: bool, server: ModelServer | None) -> None:
        """Take a model in, and have the server load it, if there is one.

        The configuration says again which versions of the model are served.

        Args:
            ignored: What the server would ignore of its options, for the log.
            replace: Whether it may take the place of one of its name and version.

        Raises:
            PyTritonInvalidOperationError: There is one that it may not replace; letter case does not count.
            PyTritonBadParameterError: It is another version of a model with another configuration.
            PyTritonValidationError: It would be part of a cycle of models with a Pipeline among them.
            PyTritonModelControlError: The server refused it.
        """
        config = spec.served.config
        beside = self._by_name[config.model_name.lower()]
        replaced = [model for model in beside if replace and model.is_same_version(config)]
        for other in beside:
            if other not in replaced:
                other.check_beside(config)
        for option in ignored:
            LOGGER.warning("model %s: %s", config.model_name, option)
        model = Model(*spec)
        self._check_pipelines(model, replaced)
        if replaced:
            self.unbind(config.model_name, config.model_version, server)
        self._set_policy(self._by_name[model.name.lower()])
        self._models.append(model)
        self._by_name[model.name.lower()].append(model)
        if server is not None:
            self.load(server)

    def _check_pipelines(self, model: Model, replaced: Sequence[Model]) -> None:
        """Refuse a cycle that calls could not find: a pipeline does not tell its steps which models wait for them."""
        models = {each.name: each for each in self._models if each not in replaced} | {model.name: model}
        paths, seen = [[model.name]], set()
        while paths:
            path = paths.pop()
            has_pipeline = any(models[name].config.steps for name in path)
            for callee in models[path[-1]].callees:
                if callee == model.name and has_pipeline:
                    raise PyTritonValidationError(
                        f"model {model.name!r} would wait for itself: {' → '.join([*path, callee])}; call a function "
                        "in place of one of the models"
                    )
                if callee in models and (callee, has_pipeline) not in seen:
                    seen.add((callee, has_pipeline))
                    paths.append([*path, callee])

    def unbind(self, name: str, version: int | None, server: ModelServer | None) -> None:
        """Forget a version of a model, or all, once the server has answered what it has; without one, at once.

        Raises:
            PyTritonInvalidOperationError: There is none, or its own callable calls this.
            PyTritonModelControlError: The server refused.
        """
        models = self.versions(name, version)
        served = current_binding.get()
        if served is not None and served.model_config in [model.config for model in models]:
            raise PyTritonInvalidOperationError(
                f"a callable of model {name!r} cannot unbind it: its own request has to be answered first; do it from "
                "another thread"
            )
        if server is not None:
            is_idle = server.wait_received({name}, UNLOAD_TIMEOUT_S)
            return self.unload(server, models, UNLOAD_TIMEOUT_S, is_idle)
        for model in models:
            self.remove(model)

    def versions(self, name: str, version: int | None = None) -> list[Model]:
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

    def config_of(self, name: str) -> TritonModelConfig | None:
        """The configuration of the model of this name that was bound last, if there is one."""
        return next((model.config for model in reversed(self._models) if model.name == name), None)

    def only_version(self, name: str, version: int | None, otherwise: str) -> Model:
        """The version of a model that is asked for; None asks for the only one.

        Raises:
            PyTritonInvalidOperationError: There is none, or there are several; ``otherwise`` is the message's end.
        """
        model, *others = self.versions(name, version)
        if others:
            raise PyTritonInvalidOperationError(f"model {name!r} has {1 + len(others)} versions{otherwise}")
        return model

    def names(self, *, loaded: bool = False) -> list[str]:
        """Of all models, or of those that the server was asked to serve."""
        return sorted({model.name for model in self._models if model.loaded or not loaded})

    def are_connected(self) -> bool:
        """Whether each model that the server is to serve has its proxies."""
        return all(model.is_connected() for model in self if self._is_served(model))

    def is_lost(self, model: Model) -> bool:
        """Whether the server was asked to serve a model, should have it, and has no proxy of it."""
        return model.loaded and model in self._models and not model.is_connected() and self._is_served(model)

    def _is_served(self, model: Model) -> bool:
        """Whether the version policy has the server serve a model."""
        return model.is_served_beside(self._by_name[model.name.lower()])

    def start(self, models: Iterable[Model] | None = None) -> None:
        """Write the files of models, by default of all, and start their workers, so that a server can load them."""
        for model in self._models if models is None else models:
            if not model.started:
                sockets = self.sockets / str(next(self._numbers))
                model.start(self._store, sockets, self.on_disconnect, self._on_unrecoverable)

    def load(self, server: ModelServer) -> None:
        """Load the models that are not loaded yet, in parallel, and the server's own; forget those that it refuses.

        Raises:
            PyTritonModelControlError: The server refused one.
        """
        by_name: dict[str, list[Model]] = defaultdict(list)
        for model in self._models:
            if not model.loaded:
                by_name[model.name].append(model)
        try:
            call_in_parallel([partial(self._load_versions, server, versions) for versions in by_name.values()])
            self._workspace.keep(*KEPT)
            server.load_others(self.names())
        finally:
            server.announce_models()

    def repair(self) -> None:
        """Make files again that a cleaner has removed from the workspace."""
        missing = self._workspace.repair()
        for model in self._models:
            if missing or not (self._store / model.name).exists():
                model.write_files()

    def _load_versions(self, server: ModelServer, models: Sequence[Model]) -> None:
        try:
            self.start(models)
            for model in models:  # processes have told by now which models they call
                self._check_pipelines(model, ())
            server.load(models[0].name)
            for model in models:
                if not self._is_served(model):
                    LOGGER.warning("model %s: its version policy leaves version %d out", model.name, model.version)
                elif not server.is_model_ready(model.name, model.version):
                    raise PyTritonModelControlError(
                        f"model {model.name!r}, version {model.version}, did not get ready; the server's log has more"
                    )
        except BaseException:
            for model in models:
                self.remove(model)
            raise
        for model in models:
            model.loaded = True
            LOGGER.info(server.announcement(model.config))
            if model.waits_for_callees:
                LOGGER.info(
                    "model %s: each of its instances waits while it calls %s, and answers nothing else meanwhile; more "
                    "instances, or a coroutine function, answer several batches at once",
                    model.name,
                    " and ".join(sorted(model.callees)),
                )

    def scale(self, name: str, count: int, server: ModelServer | None) -> None:
        """Change the number of a model's worker processes; errors as for :meth:`pytriton.base.TritonBase.scale`."""
        model = self.only_version(name, None, ", which all have as many instances")
        model.scale(count, lambda: server.load(name) if server is not None and model.loaded else None)
        if model.sockets is not None:
            self._workspace.forget(model.sockets, if_missing=True)
        self._workspace.keep(*KEPT)

    def serve_versions(self, name: str, versions: Sequence[int] | None, server: ModelServer | None) -> None:
        """Change which versions are served; errors as for :meth:`pytriton.base.TritonBase.serve_versions`."""
        models = self.versions(name)
        chosen = [self.only_version(name, version, "").version for version in versions or ()]
        if versions is not None and not chosen:
            raise PyTritonBadParameterError(f"model {name!r}: give at least one version, or unbind the model")
        before = models[0].version_policy
        self._set_policy(models, SpecificVersions(chosen) if chosen else None)
        try:
            if server is not None:
                server.load(name)
        except BaseException:
            self._set_policy(models, before)
            raise

    @staticmethod
    def _set_policy(versions: Sequence[Model], policy: VersionPolicy | None = None) -> None:
        """Write which of the versions are served; by default what their configuration says."""
        for model in versions:
            model.version_policy = policy or model.config.version_policy
            model.write_files()

    def unload(
        self, server: ModelServer, models: Sequence[Model], timeout_s: float, is_idle: Callable[[], bool]
    ) -> None:
        """Have the server refuse new requests to versions of one model and answer those it has; then forget them.

        They are forgotten even if the server refuses, or has gone.

        Args:
            timeout_s: The longest wait for requests in flight.
            is_idle: As for :meth:`wait_drained`.
        """
        name = models[0].name
        others = [model for model in self._models if model.name == name and model.loaded and model not in models]
        for model in models:
            model.loaded = False
        try:
            if others:
                for model in models:
                    model.remove_files()
                self._set_policy(others)
                server.load(name)  # without the versions whose files have gone
            else:
                server.unload(name)
            if not self.wait_drained(server, time.monotonic() + timeout_s, is_idle, models):
                LOGGER.warning("model %s: its requests in flight were ended after %.0f s", name, timeout_s)
        finally:
            for model in models:
                self.remove(model)

    def unload_callers(self, server: ModelServer, deadline: float) -> None:
        """Unload the models that call others, each before those that it calls, so that its requests can be answered.

        Args:
            deadline: In :func:`time.monotonic` seconds.
        """
        callees: dict[str, set[str]] = {}
        for model in self._models:
            if model.loaded:
                callees.setdefault(model.name, set()).update(model.callees)
        with suppress(PyTritonModelControlError):  # the server has gone
            for name in reversed(_in_order(callees)):
                if callees.get(name):
                    self.unload(server, self.versions(name), max(0.0, deadline - time.monotonic()), lambda: True)

    def wait_drained(
        self,
        server: ModelServer,
        deadline: float,
        is_idle: Callable[[], bool],
        unloaded: Sequence[Model] | None = None,
    ) -> bool:
        """Wait until models that the server unloads have answered all requests that it had accepted.

        Then the server ends the proxies and reports the models as unloaded. It does neither while a client keeps a gRPC
        stream open, or after one was cancelled in an unlucky moment, and it does so 1 s late with the Python proxy. So
        it is also enough if the instances had nothing to do for a second, and nothing else is under way.

        Args:
            deadline: In :func:`time.monotonic` seconds.
            is_idle: Whether nothing is under way, as far as can be seen from outside.
            unloaded: The models; default: all.

        Returns:
            False at the deadline.
        """
        models = self._models if unloaded is None else unloaded
        next_state_poll = time.monotonic() + STATE_POLL_S
        while held := [model for model in models if not model.wait_disconnected(0.0)]:
            quiet_s = QUIET_S + max(model.queue_delay_s() for model in held)
            if all(model.quiet_s() > quiet_s for model in held) and is_idle():
                break
            now = time.monotonic()
            if now > deadline or not any(model.is_alive() for model in models):  # ended by a second signal
                return False
            if now > next_state_poll:
                next_state_poll = now + STATE_POLL_S
                with suppress(PyTritonModelControlError):  # the server ends, and its proxies with it
                    if server.are_unloaded([(model.name, model.version) for model in models]):
                        break
            soon = min(deadline, time.monotonic() + POLL_S)
            all(model.wait_disconnected(soon) for model in models)
        return True

    def remove(self, model: Model) -> None:
        """End a model's workers, remove its files and forget it."""
        model.close()
        if model.sockets is not None:
            self._workspace.forget(model.sockets)
        self._models.remove(model)
        self._by_name[model.name.lower()].remove(model)
        self._set_policy(self._by_name[model.name.lower()])

    def interrupt(self) -> None:
        """End all waits for starts and rebinds, as :meth:`Model.interrupt`. From any thread."""
        for model in self:
            model.interrupt()

    def disconnect(self) -> None:
        """End all workers, each when its callable has returned. From any thread."""
        models = list(self)
        for model in models:
            model.disconnect()
        for model in models:
            model.join()

    def clear(self) -> None:
        """Forget the models."""
        self._models.clear()
        self._by_name.clear()
        self.cleared.set()


def _in_order(callees: Mapping[str, set[str]]) -> list[str]:
    """All models, each after those that it calls; a cycle is cut anywhere."""
    while True:
        try:
            return [*TopologicalSorter(callees).static_order()]
        except CycleError as error:
            callee, caller, *_ = error.args[1]
            callees[caller].discard(callee)


def call_in_parallel(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls on up to PARALLEL_LOADS threads, and return when all have ended.

    The executors of :mod:`concurrent.futures` take no work once the main thread has ended, though others go on.

    Raises:
        Exception: The error of the first call that failed.
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
        for number in range(1, min(len(calls), PARALLEL_LOADS))
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
