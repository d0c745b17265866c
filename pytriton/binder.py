"""Binding callables to models, before and while a server serves them."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

from pytriton.bound_models import BoundModels
from pytriton.config import TritonConfig
from pytriton.exceptions import PyTritonInvalidOperationError, PyTritonValidationError
from pytriton.model import Model, check_name, describe
from pytriton.model_config import ModelConfig, Tensor
from pytriton.model_config.validation import checked_copy
from pytriton.server.control import ModelControl
from pytriton.server.native import uses_native
from pytriton.server.unmet import Abilities, unmet_wishes
from pytriton.signature.functions import name_of
from pytriton.signature.schema import KEY
from pytriton.utils.workspace import Workspace
from pytriton.worker.channel import Meet
from pytriton.worker.context import TritonContext, current_binding
from pytriton.worker.inference import Options
from pytriton.worker.observation import Observation
from pytriton.worker.spans import traces
from pytriton.workers.crew import Infer
from pytriton.workers.inspection import tensors_of
from pytriton.workers.processes import Processes
from pytriton.workers.thread_crew import callables

__all__ = ["ModelBinder"]

LOGGER = logging.getLogger("pytriton.triton")

UNLOAD_TIMEOUT_S = 30.0

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class ModelBinder(ABC):
    """Binds callables to the models of a server, which may come later.

    Args:
        workspace: Folder for the models' files and sockets, which must not exist; default: a new one below
            ``PYTRITON_HOME``.
        config: Of the server, if it is ours.

    Attributes:
        triton_context: What the bound callables share.
    """

    def __init__(self, workspace: Workspace | str | Path | None, config: TritonConfig | None) -> None:
        self._config = config
        self._workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._models = BoundModels(self._workspace, self._on_disconnect, self._on_unrecoverable, self._on_loaded)
        self._control: ModelControl | None = None
        self._lock = threading.RLock()
        self._observation = Observation()
        self.triton_context = TritonContext()

    def bind(
        self,
        model_name: str | Infer | None = None,
        infer_func: Infer | None = None,
        inputs: Sequence[Tensor] | None = None,
        outputs: Sequence[Tensor] | None = None,
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: list[str] | None = None,
        *,
        replace: bool = False,
        example: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Serve a callable as a model; at once if there is a server, else as soon as there is.

        Args:
            model_name: Letters, digits, dots, underscores and dashes. ``bind(function)`` takes that of the function.
            infer_func: Gets a list of requests and returns a list of one mapping, output name to array, per request;
                the decorators give it other signatures. A list of callables makes one model instance of each: they run
                in parallel threads. :class:`pytriton.workers.Processes` makes instances in processes of their own.
                A call with several clients' requests that raises is repeated with each request alone, so that side
                effects happen twice; ``ModelConfig(isolate_errors=False)`` prevents that.
            inputs: Without the batch axis; nameless ones are called INPUT_1, INPUT_2, ... Where they and ``outputs``
                are left out, they come from the callable's annotations, and from ``example``; see
                docs/typed_functions.md.
            outputs: Likewise OUTPUT_1, OUTPUT_2, ...
            model_version: Several versions of a model may be bound; they share all but the callables.
            config: Batching and more. It is copied: what is assigned to it afterwards has no effect.
            strict: Check every result's names, dtypes and shapes against ``outputs``.
            trace_config: Of the server that traces the requests; default: ``TritonConfig.trace_config``. With
                ``mode=opentelemetry``, the callables' spans are sent where the server's are; see docs/observability.md.
            replace: Unbind what is bound under this name and version first, once all arguments were checked. Requests
                that come meanwhile are refused; :meth:`rebind` replaces the callable alone, and loses none.
            example: A request, or several that differ in shape: dicts from the names of inputs to values, or to arrays
                (with batch axis under ``@batch``). The callable is called with each, here and as its first warm-up;
                dtypes and shapes that annotations leave open are those of its arguments and results.

        Raises:
            ImportError: ``trace_config`` is for OpenTelemetry, which is not installed.
            ValueError: It has no URL to send spans to.
            PyTritonValidationError: The name, callable, tensors or config are wrong, or the callable's parameters are
                not what it would be called with.
            PyTritonBadParameterError: A value in the configuration is out of range.
            PyTritonInvalidOperationError: The name and version are bound, or this object was stopped.
            PyTritonServerError: It takes the server's Python backend, which cannot run in this interpreter.
            PyTritonWorkerError: A worker process could not be started.
            tritonclient.utils.InferenceServerException: The server refused the model.
        """
        name, infer_func = _named(model_name, infer_func)
        check_name(name)
        of_the_server = self._config.trace_config if self._config else None
        traced = traces(name, trace_config, of_the_server)
        infer = infer_func if isinstance(infer_func, Processes) else callables(infer_func)
        instances = len(infer.places() if isinstance(infer, Processes) else infer)
        config = ModelConfig() if config is None else checked_copy(config)
        derived = tensors_of(infer, inputs, outputs, config, example)
        config = derived.config
        described = describe(name, model_version, derived.inputs, derived.outputs, config, instances)
        if derived.signature is not None:
            described.backend_parameters[KEY] = derived.signature.to_json()
        followed = of_the_server if trace_config is None else trace_config
        native = uses_native(config.proxy, ours=self._is_ours())
        if not native:
            self._check_python_backend()
        options = Options(
            strict,
            config.isolate_errors,
            config.send_traceback,
            config.max_batches_in_flight,
            config.model_warmup or (),
            self._may_forward_headers(),
        )
        abilities = self._abilities()
        with self._changing(f"bind model {name!r}"):
            replaced = self._models.replaced_by(described) if replace else []
            self._models.check_beside(described, replaced)
            for wish in unmet_wishes(described, abilities) if abilities else ():
                LOGGER.warning("model %s: %s", name, wish)
            model = Model(
                infer,
                described,
                self.triton_context,
                options,
                self._observation,
                traced,
                native,
                followed,
                self._offer,
            )
            if replaced:
                self.unbind(name, model_version)
            self._models.add(model)
            if self._control is not None:
                self._load(self._control)

    @overload
    def model(self, infer_func: FunctionT, /) -> FunctionT: ...
    @overload
    def model(
        self, infer_func: None = None, /, *, name: str | None = None, **options: Any
    ) -> Callable[[FunctionT], FunctionT]: ...
    def model(self, infer_func: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Decorate a function to :meth:`bind` it; it stays as it is.

        For instance::

            @triton.model
            def shout(text: str) -> str:
                return text.upper()

        Args:
            infer_func: The function.
            name: Of the model; default: the function's.
            options: Other arguments of :meth:`bind`, which raises the same.
        """

        def bound(function: FunctionT) -> FunctionT:
            self.bind(name, function, **options)
            return function

        return bound if infer_func is None else bound(infer_func)

    def rebind(self, model_name: str, infer_func: Infer, model_version: int | None = None) -> None:
        """Replace a model's callable while it is served: no request is lost, and none is answered by both.

        Calls that run go on to their end; each batch that comes after is for the new callable.

        Args:
            model_name: Of a bound model.
            infer_func: One callable, or as many as the model has instances; Processes in place of Processes.
            model_version: Of the model; None if it has but one.

        Raises:
            PyTritonInvalidOperationError: There is no such model, or several versions of it.
            PyTritonValidationError: There are more or fewer callables than instances, or ones of another kind (plain,
                ``async def``), which takes other proxies; use ``bind(..., replace=True)`` instead. Or the parameters of
                one are not what it would be called with.
            PyTritonWorkerError: A worker process cannot; all have the callables that they had.
        """
        with self._changing(f"rebind model {model_name!r}"):
            model, *others = self._models.versions(model_name, model_version)
            if others:
                raise PyTritonInvalidOperationError(
                    f"model {model_name!r} has {1 + len(others)} versions; say which with model_version"
                )
            model.rebind(infer_func)

    def scale(self, model_name: str, count: int) -> None:
        """Change the number of a model's worker processes while it is served: no request is lost.

        Workers that leave answer their last requests first; this returns when they have, or at :meth:`stop`.

        Args:
            model_name: Of a model that was bound with :class:`pytriton.workers.Processes`.
            count: How many workers there shall be.

        Raises:
            PyTritonInvalidOperationError: There is no such model, it has threads, or several versions.
            PyTritonBadParameterError: ``count`` is not a positive integer.
            PyTritonWorkerError: A worker could not be started; all stays as it was.
            tritonclient.utils.InferenceServerException: The server refused; all stays as it was.
        """
        with self._changing(f"scale model {model_name!r}"):
            model, *others = self._models.versions(model_name, None)
            if others:
                raise PyTritonInvalidOperationError(
                    f"model {model_name!r} has {1 + len(others)} versions, which all have as many instances"
                )
            control = self._control
            model.scale(count, lambda: control.load(model_name) if control is not None and model.loaded else None)

    def _check_may_start(self, what: str) -> None:
        """As :meth:`_check_running`; also raise where no thread may start, and none may get to run."""
        self._check_running(what)
        main = threading.main_thread()
        if threading.current_thread() is main and not main.is_alive():
            raise PyTritonInvalidOperationError(
                f"cannot {what}: the interpreter is exiting, as this is an atexit handler; do it earlier"
            )

    def _on_loaded(self, model: Model) -> None:
        """Have workers that were not waited for join the others."""
        if model.has_late_workers():
            name = f"pytriton-join-{model.name}"
            threading.Thread(target=self._join, args=(model,), name=name, daemon=True).start()

    def _join(self, model: Model) -> None:
        count = model.wait_for_late_workers()
        with self._lock:
            if not count or model not in self._models or not model.has_late_workers():  # unbound or scaled meanwhile
                return
            try:
                self.scale(model.name, count)
            except PyTritonInvalidOperationError as error:  # it has several versions, or the server has just ended
                LOGGER.warning("the other workers of model %s cannot join the first one: %s", model.name, error)
            except Exception:
                LOGGER.exception("the other workers of model %s cannot join the first one", model.name)

    def unbind(self, model_name: str, model_version: int | None = None) -> None:
        """Serve a model no longer: new requests are refused, those in flight answered; then it is forgotten.

        Args:
            model_name: Of a bound model.
            model_version: Only this one; None is all versions.

        Raises:
            PyTritonInvalidOperationError: There is no such model, or this is a call of it.
            tritonclient.utils.InferenceServerException: The server refused; the model is forgotten here all the same.
        """
        with self._changing(f"unbind model {model_name!r}", self._check_running):
            models = self._models.versions(model_name, model_version)
            served = current_binding.get()
            if served is not None and served.model_config in [model.config for model in models]:
                raise PyTritonInvalidOperationError(
                    f"a callable of model {model_name!r} cannot unbind it: its own request has to be answered first; "
                    "do it from another thread"
                )
            if self._control is None:
                for model in models:
                    self._models.remove(model)
            else:
                is_idle = self._before_unload({model_name}, UNLOAD_TIMEOUT_S)
                self._models.unload(self._control, models, UNLOAD_TIMEOUT_S, is_idle)

    def _before_unload(self, models: Collection[str], timeout_s: float) -> Callable[[], bool]:
        """Wait for requests that the server is receiving, for some of the time that unloading models may take.

        Returns:
            What tells whether the server has handed all requests to these models on that it had then, as far as can be
            seen from outside.
        """
        return lambda: True

    @contextmanager
    def _changing(self, what: str, check: Callable[[str], None] | None = None) -> Iterator[None]:
        """Hold the lock for a change of the models.

        Args:
            what: The change, for the error's message.
            check: Raises if it is not possible; default: :meth:`_check_may_start`.
        """
        with self._lock:
            (check or self._check_may_start)(what)
            yield

    def _load(self, control: ModelControl) -> None:
        """Have the server load what it has not loaded yet."""
        self._models.load(control)

    def _may_forward_headers(self) -> bool:
        """Whether the server may put headers among requests' parameters; of a server elsewhere that is not known."""
        config = self._config
        return config is None or bool(config.http_header_forward_pattern or config.grpc_header_forward_pattern)

    def _is_ours(self) -> bool:
        """Whether the server is started by this process, so that it has our backend."""
        return self._config is not None

    def _abilities(self) -> Abilities | None:
        """What the server does for models that ask for it; None if that is not known."""
        return Abilities.of(self._config) if self._config else None

    def _offer(self, path: str, meet: Meet) -> Callable[[], None]:
        """Have proxies in this process, if there are any, connect to a worker; returns what withdraws that."""
        return lambda: None

    @abstractmethod
    def _check_python_backend(self) -> None:
        """Raise PyTritonServerError if it is known that the server's Python backend can run no models."""

    @abstractmethod
    def _check_running(self, what: str) -> None:
        """Raise PyTritonInvalidOperationError, with what was to be done, if the server has ended."""

    @abstractmethod
    def _on_disconnect(self, model: Model) -> None:
        """Act on the end of one of a model's proxies."""

    @abstractmethod
    def _on_unrecoverable(self) -> None:
        """Act on the wish of a callable to stop the server."""


def _named(model_name: Any, infer_func: Any) -> tuple[str, Infer]:
    """The name and the callable that ``bind`` was given, of which the one may be in the other's place or missing."""
    if infer_func is None and not isinstance(model_name, str):
        model_name, infer_func = None, model_name
    if infer_func is None:
        raise PyTritonValidationError(f"model {model_name!r} has no infer_func; give bind() a callable")
    if model_name is None:
        if isinstance(infer_func, Processes):
            raise PyTritonValidationError("Processes have no name for a model; give bind() a model_name too")
        model_name = name_of(infer_func)
    return model_name, infer_func
