"""Networks of PyTorch: programs of ``torch.export``, TorchScript, and weights of a network that a module makes.

Loading the first two may run any code. A program may have pickles, and sizes that are evaluated as Python; the code of
TorchScript may run when it is loaded, and may write files. tests/torch/test_saved_torch.py shows each.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass

from pytriton.exceptions import PyTritonValidationError
from pytriton.files.formats import WEIGHTS
from pytriton.model_config.dtypes import triton_name
from pytriton.saved.contents import AXIS_NOTES, Arrays, Axes, Contents, LoadOptions, has_batch_axis
from pytriton.signature.foreign import host_array, tensor_of_array
from pytriton.signature.schema import RESULT, tensor_schema

__all__ = ["read", "set_up_torch"]


def read(path: Path, options: LoadOptions) -> Contents:
    """Load a program or a script, onto the GPU if there is one.

    Raises:
        PyTritonValidationError: The types of its inputs are neither in the file nor in the options, or are not those
            of tensors; the batch axis is not known; or the module makes no network of these weights.
    """
    device = set_up_torch(options)
    read_network = {"TorchScript": _script, WEIGHTS: _weights}.get(options.title, _program)
    inputs, network = read_network(path, options, device)
    batching = has_batch_axis(path, inputs) if options.batch is None else options.batch

    def predict(arrays: Arrays) -> dict[str, Any]:
        fitted = {each.name: each.fitted(arrays[each.name], batching) for each in inputs}
        with torch.inference_mode():
            result = network({name: tensor_of_array(array).to(device) for name, array in fitted.items()})
            return {name: host_array(value) for name, value in _leaves(result)}

    return Contents(
        f"PyTorch {options.title}",
        {each.name: tensor_schema(each.dtype, each.shape(batching)) for each in inputs},
        predict,
        batching=batching,
        notes=[AXIS_NOTES[batching], *(f"input {each}" for each in inputs), f"runs on {device}"],
        refusals=(ValueError, IndexError, AssertionError),  # the last of sizes that a program was not exported for
    )


def set_up_torch(options: LoadOptions) -> str:
    """Where networks of this process run, whose calls then have so many threads of the CPU."""
    torch.set_num_threads(options.threads)
    return "cuda" if torch.cuda.is_available() else "cpu"


def _program(path: Path, options: LoadOptions, device: str) -> tuple[list[Axes], Callable[[Mapping[str, Any]], Any]]:
    """The inputs of a program, and what calls it."""
    program = move_to_device_pass(torch.export.load(path), device)
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    names, spec, network = program.graph_signature.user_inputs, program.call_spec.in_spec, program.module()
    inputs = {name: values[name] for name in names if isinstance(name, str)}  # others are constants
    if other := next((name for name, value in inputs.items() if not isinstance(value, torch.Tensor)), None):
        raise PyTritonValidationError(f"{path}: input {other!r} is no tensor, which the server cannot send")

    def call(tensors: Mapping[str, Any]) -> Any:
        given = {name: tensors[name].to(value.dtype) for name, value in inputs.items()}  # NumPy has no bfloat16
        args, kwargs = spec.unflatten([given[name] if name in inputs else name for name in names])
        return network(*args, **kwargs)

    axes = []
    for name, value in inputs.items():
        dtype = triton_name(host_array(torch.empty(0, dtype=value.dtype)).dtype)
        axes.append(Axes(name, dtype, [size if isinstance(size, int) else str(size) for size in value.shape]))
    return axes, call


def _script(path: Path, options: LoadOptions, device: str) -> tuple[list[Axes], Callable[[Mapping[str, Any]], Any]]:
    """The inputs of a script, whose types it does not have, and what calls it."""
    network = torch.jit.load(path, map_location=device).eval()
    arguments = network.forward.schema.arguments[1:]
    names = [each.name for each in arguments if each.name in options.inputs or not each.has_default_value()]
    return [Axes.told(path, name, options) for name in names], lambda tensors: network(**tensors)


def _weights(path: Path, options: LoadOptions, device: str) -> tuple[list[Axes], Callable[[Mapping[str, Any]], Any]]:
    """The inputs of a network that the module makes, which does not tell their types, and what calls it."""
    from safetensors.torch import load_file

    module, _, factory = (options.module or "").partition(":")
    weights = load_file(path)
    try:
        network = attrgetter(factory)(importlib.import_module(module))()
        network.load_state_dict(weights)
    except Exception as error:  # of the user's module
        words = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PyTritonValidationError(
            f"{path}: {options.module} makes no network of these weights ({words})"
        ) from error
    network.to(device).eval()
    parameters = inspect.signature(network.forward).parameters.values()
    names = [each.name for each in parameters if each.name in options.inputs or each.default is each.empty]
    return [Axes.told(path, name, options) for name in names], lambda tensors: network(**tensors)


def _leaves(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of a result, under the keys, fields or numbers of places that lead to them."""
    if isinstance(result, Mapping):
        members = [*result.items()]
    elif isinstance(result, (list, tuple)):
        members = [*zip(getattr(result, "_fields", range(len(result))), result, strict=True)]
        name = name or ("" if hasattr(result, "_fields") else "output")
    else:
        yield from [] if result is None else [(name or RESULT, result)]
        return
    for key, each in members:
        yield from _leaves(each, f"{name}_{key}" if name else str(key))
