"""Decorators that change the arguments and results of an inference callable.

They work on functions, methods, callable objects, partials, coroutine functions and generator functions. Recommended
order, outermost first::

    list -> list         @fill_optionals   add inputs that a request lacks
                         @pad_batch        pad inputs to equal shapes
                         @group_by_keys    one call per set of inputs
                         @sequence_states  the state of each request's sequence
                         @with_requests    the requests behind the arrays
    list -> keywords     @batch            one call for all requests; or @sample, for models without batching
    keywords -> keywords @group_by_values  one call per value
                         @pad_batch        fill up to a preferred batch size
                         @first_value      a value instead of equal rows
    anywhere             @triton_context   the model's configuration

:class:`PerSequence` makes a callable of a class with a state per sequence.
"""

from pytriton.distribution import MIXED, is_complete

if not is_complete():  # modules of nvidia-pytriton find this package in the place of one of theirs
    raise ImportError(MIXED)

from pytriton.decorators.arguments import fill_optionals, first_value, triton_context, with_requests
from pytriton.decorators.batching import batch, pad_batch, sample
from pytriton.decorators.grouping import ConstantPadder, group_by_keys, group_by_values
from pytriton.decorators.inputs_and_outputs import (
    InferenceRequest,
    InferenceRequests,
    InferenceResult,
    InferenceResults,
    InputNames,
    convert_output,
    get_inference_request_batch_size,
)
from pytriton.decorators.sequences import PerSequence, sequence_states
from pytriton.worker.context import ModelConfigDict, TritonContext, get_model_config, get_triton_context

__all__ = [
    "ConstantPadder",
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "ModelConfigDict",
    "PerSequence",
    "TritonContext",
    "batch",
    "convert_output",
    "fill_optionals",
    "first_value",
    "get_inference_request_batch_size",
    "get_model_config",
    "get_triton_context",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "sequence_states",
    "triton_context",
    "with_requests",
]
