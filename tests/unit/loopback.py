"""Small servers on this machine, which remember what they were asked."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np
from tritonclient.grpc import service_pb2_grpc

from pytriton.model_config.parser import ModelConfigParser

CONFIG = {
    "name": "m",
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
}
INDEX = [{"name": "m", "version": "1", "state": "READY"}]
READY, CONFIGURED, INFERRED = "/v2/models/m/ready", "/v2/models/m/config", "/v2/models/m/infer"
KNOWN = {
    "model_config": ModelConfigParser.from_dict(CONFIG),
    "ensure_model_is_ready": False,
}  # a client only infers
X = np.arange(6, dtype=np.float32).reshape(3, 2)  # three samples of the model's input


def paths(server):
    """What a server was asked for, in this order."""
    return [path for path, _ in server.requests]


@contextlib.contextmanager
def closed_address():
    """Where nobody listens until the end of the block; a gRPC server of this process may."""
    with socket.socket() as owner:  # a port that nobody has could be given to another test
        owner.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        owner.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{owner.getsockname()[1]}"


@contextlib.contextmanager
def listening(talk=None):
    """A server that accepts connections; ``talk(connection, stopped)`` does the rest, else it stays silent."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            connections = []
            while not stopped.is_set():
                with contextlib.suppress(OSError):  # clients hang up when they like
                    connections.append(server.accept()[0])
                    if talk:
                        talk(connections[-1], stopped)
            for connection in connections:
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            stopped.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextlib.contextmanager
def serving(server):
    """Let an HTTP server run."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class LocalServer(ThreadingHTTPServer):
    """Closes its connections at its end, and waits for their threads."""

    request_queue_size = 128  # where more connections are made at once, some would take a second
    daemon_threads = False

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self._open = set()

    def process_request(self, request, client_address):
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self):
        for request in [*self._open]:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                request.shutdown(socket.SHUT_RDWR)
        super().server_close()


class Web(LocalServer):
    """Answers with ``status`` and ``body``, and remembers what it was asked, and over how many connections."""

    def __init__(self):
        super().__init__(WebHandler)
        self.status, self.body, self.requests, self.connections = 200, b"{}", [], set()
        self.address = f"127.0.0.1:{self.server_port}"


class WebHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body travel in one packet

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.connections.add(self.client_address)
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class ModelServer(LocalServer):
    """Serves the model ``m``, which echoes its inputs, after ``hold()``; wants ``token`` with every request, if any."""

    def __init__(self):
        super().__init__(ModelHandler)
        self.requests, self.token, self.hold = [], None, lambda: None
        self.url = f"http://127.0.0.1:{self.server_port}"


class ModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        split = int(self.headers.get("Inference-Header-Content-Length", 0))
        if self.headers.get("triton-access-token") != self.server.token:
            self.reply(403, b'{"error": "restricted"}')
        elif self.path.endswith("/infer"):
            self.server.hold()
            header = json.dumps({"outputs": json.loads(body[:split])["inputs"]}).encode()
            self.reply(200, header + body[split:], {"Inference-Header-Content-Length": len(header)})
        elif "/models/other" in self.path:
            self.reply(400, b'{"error": "unknown model"}')
        elif self.path.endswith("/config"):
            self.reply(200, json.dumps(CONFIG).encode())
        else:
            self.reply(200, json.dumps(INDEX).encode() if self.path.endswith("/index") else b"")

    do_POST = do_GET

    def reply(self, status, body, headers=()):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Inference(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers ``answer``; ``abort`` is a (code, text) to fail with instead, and ``hold(context)`` comes before both."""

    def __init__(self):
        self.answer, self.abort, self.metadata, self.peers = None, None, [], set()
        self.hold = lambda context: None

    def _reply(self, request, context):
        self.peers.add(context.peer())
        self.metadata.append(dict(context.invocation_metadata()))
        self.hold(context)
        if self.abort:
            context.abort(*self.abort)
        return self.answer

    ServerLive = ModelConfig = RepositoryIndex = ModelInfer = _reply


@contextlib.contextmanager
def serving_grpc(address="127.0.0.1:0"):
    """Let an :class:`Inference` run, on a free port or at an address."""
    servicer = Inference()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port(address)}"
    server.start()
    try:
        yield servicer
    finally:
        server.stop(None).wait()


def fed(reader, data):
    """The responses that a reader of responses makes of bytes."""
    complete = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        complete += reader.received(count)
    return complete
