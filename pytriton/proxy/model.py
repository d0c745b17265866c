"""The proxy: the model that Triton's Python backend runs. It hands each batch to the worker and answers with the reply.

``execute`` is the data path on the server's side, in one of two ways: :class:`Turns` or :class:`Streams`.
"""

from __future__ import annotations

import gc
import json
import os
from typing import Any

import triton_python_backend_utils as pb_utils

from .abi import adapt, lend_inputs
from .codec import Codec
from .link import Link
from .placement import check_as_bound, instance_number
from .region import close_to_others
from .slots import Slots, ready_input
from .streams import Streams
from .turns import Turns

ENDPOINT_FILE = "endpoint.json"


class TritonPythonModel:
    """One instance of a bound model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Connect to the worker of this instance; raising makes the server refuse to load the model."""
        close_to_others()
        lend_inputs()  # they are copied on their way to the worker
        folder = os.path.join(args["model_repository"], args["model_version"])
        with open(os.path.join(folder, ENDPOINT_FILE), encoding="utf-8") as file:
            endpoint = json.load(file)
        model_config = json.loads(args["model_config"])
        check_as_bound(model_config, endpoint["bound"])
        adapt(pb_utils, pb_utils.Tensor)
        codec = Codec(model_config, pb_utils.Tensor, endpoint.get("traced", False))
        instance = instance_number(model_config, args["model_instance_name"], args["model_instance_device_id"])
        path = os.path.join(endpoint["folder"], f"{endpoint['prefix']}.{instance}")
        link = Link(path, {"model": args["model_name"], "instance": args["model_instance_name"]})
        limit = endpoint["batches_in_flight"]
        batches = Turns(link, codec) if limit is None else Streams(link, codec, limit)
        ready = ready_input(model_config)
        self._batches: Turns | Streams | Slots = Slots(batches, ready) if ready else batches
        gc.collect()
        gc.freeze()

    def finalize(self) -> None:
        """Close the connection: the worker learns that no batch is in flight any more."""
        self._batches.close()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        """Answer a batch: with the responses, or with None if they are sent later."""
        return self._batches.execute(requests)
