"""How a callable finds the configuration of the model it serves.

Each worker thread serves one model instance and sets :data:`current_binding` to it, which distinguishes two models that
share one callable. Threads that did not inherit the binding use the attribute that :func:`attach` set on the callable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import product
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

import wrapt

from pytriton.constants import TRITON_CONTEXT_ATTRIBUTE, TRITON_CONTEXT_FIELD_NAME
from pytriton.exceptions import PyTritonValidationError

if TYPE_CHECKING:
    from pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "Binding",
    "ModelConfigDict",
    "TritonContext",
    "attach",
    "current_binding",
    "get_model_config",
    "get_triton_context",
]

InferenceCallable = Callable[..., Any]


class ModelConfigDict(MutableMapping[InferenceCallable, "TritonModelConfig"]):
    """Configuration of the model behind each callable.

    Keys are compared by identity, so callables need not be hashable. A function and its decorated forms are one key,
    every access to a bound method is the same key, and a bound ``__call__`` is the key of its object.

    For a callable that serves several models, a lookup returns the configuration of the model that the current thread
    serves; in other threads, that of the model that was bound last.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], tuple[InferenceCallable, list[TritonModelConfig]]] = {}

    def __getitem__(self, infer_callable: InferenceCallable) -> TritonModelConfig:
        key = _identity(infer_callable)
        binding = current_binding.get()
        if binding is not None and binding.context.model_configs is self and binding.identity == key:
            return binding.model_config
        if key not in self._entries:
            raise KeyError(infer_callable)
        return self._entries[key][1][-1]

    def __setitem__(self, infer_callable: InferenceCallable, item: TritonModelConfig) -> None:
        self._entries[_identity(infer_callable)] = (_object_of_call(infer_callable), [item])

    def __delitem__(self, infer_callable: InferenceCallable) -> None:
        if self._entries.pop(_identity(infer_callable), None) is None:
            raise KeyError(infer_callable)

    def add(self, target: InferenceCallable, model_config: TritonModelConfig) -> None:
        """Add a model that a callable serves; there may be several."""
        _, model_configs = self._entries.setdefault(_identity(target), (_object_of_call(target), []))
        model_configs.append(model_config)

    def discard(self, target: InferenceCallable, model_config: TritonModelConfig) -> None:
        """Remove a model that a callable served; remove the callable too if it serves no other."""
        _, model_configs = self._entries.get(_identity(target), (target, []))
        for index in [index for index, each in enumerate(model_configs) if each is model_config][-1:]:
            del model_configs[index]
            if not model_configs:
                del self[target]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[InferenceCallable]:
        return iter([target for target, _ in self._entries.values()])


@dataclass(frozen=True)
class TritonContext:
    """What the callables of one ``Triton`` object share.

    Attributes:
        connector: Returns what connects callables to the server (``pytriton.composition.connector``); None if its
            address is not known.
        memory_budget: The :class:`pytriton.pool.memory_budget.MemoryBudget` of worker processes, if there is one.
    """

    model_configs: ModelConfigDict = field(default_factory=ModelConfigDict)
    connector: Callable[[], Any] | None = field(default=None, repr=False, compare=False)
    memory_budget: Any = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[TritonContext], tuple[()]]:
        """Copies are empty: a callable that was bound may go to a process, where it is bound anew."""
        return TritonContext, ()


@dataclass(frozen=True)
class Binding:
    """The callable and model that a worker thread serves.

    Args:
        callable: The callable as it was given to ``bind``.
        model_config: Configuration of the model that this thread serves.
        context: Context of the ``Triton`` object that the model belongs to.
    """

    callable: InferenceCallable
    model_config: TritonModelConfig
    context: TritonContext

    @functools.cached_property
    def identity(self) -> tuple[int, int]:
        """The key of the callable, which its decorated forms share."""
        return _identity(self.callable)


current_binding: ContextVar[Binding | None] = ContextVar("pytriton_binding", default=None)
"""Set by each worker thread at its start, and when its callable is replaced; None in every other thread."""


def attach(target: InferenceCallable, context: TritonContext, model_config: TritonModelConfig) -> None:
    """Make ``target`` known to ``context``, and ``context`` to ``target``.

    Args:
        target: A callable given to ``bind``. It gets the attribute ``triton_context``: a bound method on its object, a
            ``functools.partial`` on its function too. Objects that take no attributes are served through
            :data:`current_binding` alone.
        model_config: Configuration of the model that the callable serves.
    """
    context.model_configs.add(target, model_config)
    for owner in _owners(target):
        with suppress(AttributeError, TypeError, ValueError):
            setattr(owner, TRITON_CONTEXT_FIELD_NAME, context)


def get_triton_context(wrapped: Any, instance: Any) -> TritonContext:
    """Context of the model that is being served, or that the callable was given.

    Functions that are not bound, as in unit tests, have it if the attribute ``__triton_context__`` was set, on them or
    on the object of a method. A test may set it to any object.

    Args:
        wrapped: The callable, decorated or not.
        instance: The object whose method it is, or None.

    Raises:
        PyTritonValidationError: Neither this thread nor the callable is bound to a model.
    """
    binding = current_binding.get()
    if binding is not None:
        return binding.context
    owners = instance, wrapped, getattr(wrapped, "__self__", None)
    for owner, name in product(owners, (TRITON_CONTEXT_ATTRIBUTE, TRITON_CONTEXT_FIELD_NAME)):
        context = getattr(owner, name, None)
        # The second name may be an attribute of the user's own.
        if isinstance(context, TritonContext) or (context is not None and name == TRITON_CONTEXT_ATTRIBUTE):
            return cast(TritonContext, context)
    raise PyTritonValidationError(
        f"{_described(wrapped)} is not bound to a model; pass it to Triton.bind() before calling it, in threads of "
        "your own call it through contextvars.copy_context().run, and in tests give it a TritonContext as attribute "
        f"{TRITON_CONTEXT_ATTRIBUTE}"
    )


def get_model_config(wrapped: Any, instance: Any) -> TritonModelConfig:
    """Configuration of the model behind ``wrapped``: its own if it is bound, else that of the callable that uses it.

    Args:
        wrapped: The callable, decorated or not.
        instance: The object whose method it is, or None.

    Raises:
        PyTritonValidationError: Neither this thread nor the callable is bound to a model.
    """
    model_config = get_triton_context(wrapped, instance).model_configs.get(wrapped)
    if model_config is not None:
        return model_config
    binding = current_binding.get()
    if binding is None:
        raise PyTritonValidationError(
            f"{_described(wrapped)} has no model configuration of its own; in threads of your own call it through "
            "contextvars.copy_context().run"
        )
    return binding.model_config


def _undecorated(target: Any) -> Any:
    while isinstance(target, (wrapt.FunctionWrapper, wrapt.BoundFunctionWrapper)):
        target = target.__wrapped__
    return target


def _object_of_call(target: Any) -> Any:
    """The object of a bound ``__call__``; else the callable itself."""
    bare = _undecorated(target)
    if isinstance(bare, MethodType) and getattr(bare.__func__, "__name__", None) == "__call__":
        return bare.__self__
    return target


def _identity(target: Any) -> tuple[int, int]:
    """Ids of a bound method's object and function; else the id of the callable, and 0."""
    bare = _undecorated(target)
    if not isinstance(bare, MethodType):
        return id(bare), 0
    called = _object_of_call(bare)
    return _identity(called) if called is not bare else (id(bare.__self__), id(bare.__func__))


def _owners(target: Any) -> Iterator[Any]:
    """The objects that get the attribute: the callable, or the object of a bound method, at each level of partials."""
    target = _undecorated(target)
    yield target.__self__ if isinstance(target, MethodType) else target
    if isinstance(target, functools.partial):
        yield from _owners(target.func)


def _described(target: Any) -> str:
    return repr(getattr(target, "__qualname__", None) or target)
