"""Requests that no client library would send, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from pytriton.triton import TritonConfig
from tests.server.processes import DEADLINE_S

LOCALHOST = "127.0.0.1"
TENSOR = b'"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]'


def send(config: TritonConfig, model: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Send an inference over HTTP; the status and body of the answer."""
    connection = HTTPConnection(LOCALHOST, config.http_port, timeout=DEADLINE_S)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def post(config: TritonConfig, model: str, fields: bytes, headers: Mapping[str, str] = {}) -> tuple[int, bytes]:
    """Send members of the JSON as they are, beside a tensor ``x``; as :func:`send`."""
    return send(config, model, b"{" + fields + b"," + TENSOR + b"}", headers)


class Raw:
    """Sends requests over one protocol, byte by byte as a test wants them."""

    def __init__(self, protocol, config):
        self._protocol = protocol
        self._config = config

    def infer(self, model, *inputs):
        """Send a request.

        Args:
            model: Its name.
            inputs: Each a name, datatype, shape and its data.

        Returns:
            The status, and the text of the error or nothing.
        """
        return getattr(self, f"_{self._protocol}")(model, inputs)

    def _http(self, model, inputs):
        described = [
            {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
            for name, datatype, shape, data in inputs
        ]
        return self.post(model, described, b"".join(data for *_, data in inputs))

    def post(self, model, described, data=b""):
        header = json.dumps({"inputs": described}).encode()
        length = {"Inference-Header-Content-Length": str(len(header))}
        status, body = send(self._config, model, header + data, length)
        return str(status), body.decode() if status != 200 else ""

    def _grpc(self, model, inputs):
        request = service_pb2.ModelInferRequest(model_name=model)
        for name, datatype, shape, data in inputs:
            request.inputs.add(name=name, datatype=datatype, shape=shape)
            request.raw_input_contents.append(data)
        with grpc.insecure_channel(f"{LOCALHOST}:{self._config.grpc_port}") as channel:
            try:
                service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=DEADLINE_S)
            except grpc.RpcError as error:
                return error.code().name, error.details()
            return "200", ""
