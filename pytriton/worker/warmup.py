"""Requests for a model instance before the server knows it.

They are sent in the proxy's place, through the same socket: the callable sees no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from pytriton.exceptions import PyTritonBadParameterError
from pytriton.logs import get_logger
from pytriton.model_config import SequenceBatcher
from pytriton.model_config.triton_model_config import TritonModelConfig
from pytriton.model_config.warmup import ModelWarmup, WarmupInput, generate_warmup_requests
from pytriton.wire.arena import ArenaFullError
from pytriton.wire.channel import Channel, PeerGoneError
from pytriton.wire.connect import connect
from pytriton.wire.frames import ASK, ERROR, REQUEST, RESPONSE, SEQUENCE_END, SEQUENCE_START, Frame, cancellation
from pytriton.wire.tensors import FrameError, joined, tensor

__all__ = ["warm_up"]

LOGGER = get_logger("pytriton.worker")

CONNECT_TIMEOUT_S = 10.0
A_SEQUENCE = {"sequence": [1, SEQUENCE_START | SEQUENCE_END]}  # of one request

Arrays = dict[str, NDArray[Any]]


def warm_up(path: str, config: TritonModelConfig, model_warmup: Sequence[ModelWarmup]) -> None:
    """Make the requests one after the other, and wait for all responses to each. Failures are logged as warnings.

    Args:
        model_warmup: What to send, checked against ``config``.
    """
    for warmup in model_warmup:
        with _forgiving(config, warmup), closing(connect(path, {"warm_up": warmup.name}, CONNECT_TIMEOUT_S)) as channel:
            warmup = _completed(warmup, config)
            requests = generate_warmup_requests(warmup, config.inputs, config.outputs, batching=config.batching)
            for number, inputs in enumerate(requests, 1):
                for error in _errors(channel, _request(number, inputs, config), _tensors(inputs, config)):
                    _warn(config, warmup, error)


def _completed(warmup: ModelWarmup, config: TritonModelConfig) -> ModelWarmup:
    """With zeros for the inputs that it leaves out, if they are not optional; a variable size is 1."""
    zeros = {
        spec.name: WarmupInput(spec.dtype, [max(size, 1) for size in spec.shape], zero_data=True)
        for spec in config.inputs or ()
        if spec.name not in warmup.inputs and not spec.optional
    }
    return replace(warmup, inputs={**warmup.inputs, **zeros}) if zeros else warmup


@contextmanager
def _forgiving(config: TritonModelConfig, warmup: ModelWarmup) -> Iterator[None]:
    try:
        yield
    except (PyTritonBadParameterError, PeerGoneError, FrameError, ArenaFullError) as error:
        _warn(config, warmup, str(error))


def _warn(config: TritonModelConfig, warmup: ModelWarmup, error: str) -> None:
    LOGGER.warning(
        "model %s: warm-up %s failed, which does not prevent loading: %s", config.model_name, warmup.name, error
    )


def _request(number: int, inputs: Arrays, config: TritonModelConfig) -> Frame:
    rows = [len(array) for array in inputs.values()][:1] if config.batching and inputs else None
    metadata = json.dumps({"0": A_SEQUENCE}).encode() if isinstance(config.batcher, SequenceBatcher) else b""
    return Frame(REQUEST, number, 1, rows, metadata)


def _errors(channel: Channel, request: Frame, tensors: list[Any]) -> Iterator[str]:
    """Send a request; the messages of the errors in its responses."""
    channel.send(request, tensors)
    while True:
        reply = channel.receive()
        if reply.kind == ASK:
            channel.send(cancellation(request.number, 1, [], False))
            continue
        if reply.kind == ERROR:
            yield json.loads(reply.metadata)["message"]
        elif reply.kind == RESPONSE and reply.metadata:
            yield from (error["message"] for error in json.loads(reply.metadata)["errors"].values())
        more = reply.more
        del reply  # the worker's memory is released with it
        if not more:
            return
        channel.release(taken=True)  # only streams expect to be told at once


def _tensors(inputs: Arrays, config: TritonModelConfig) -> list[Any]:
    names = [spec.name for spec in config.inputs or ()]
    if config.batching:
        return [joined(names.index(name), [array], len(array)) for name, array in inputs.items()]
    return [tensor(names.index(name), array, 0) for name, array in inputs.items()]
