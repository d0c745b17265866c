"""tritonclient.http reaches a server that a proxy serves below a path."""

import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from tests.server.arrays import filled
from tests.server.conftest import LOCALHOST
from tests.server.tritonclients import Api, only_http

pytestmark = pytest.mark.either_proxy

BASE = "/some/base"


class Proxy(BaseHTTPRequestHandler):
    """Serves what is below BASE from the server's root, and nothing else."""

    protocol_version = "HTTP/1.1"
    server_address = ""

    def do_GET(self):
        if not self.path.startswith(f"{BASE}/v2"):
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = HTTPConnection(self.server_address)
        connection.request(self.command, self.path.removeprefix(BASE), body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def proxy(server_address):
    handler = type("Handler", (Proxy,), {"server_address": server_address})
    with ThreadingHTTPServer((LOCALHOST, 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"{LOCALHOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@only_http
@pytest.mark.parametrize("base", [BASE, f"{BASE}/"])
def test_a_base_path_is_put_before_every_call(api, bind, base):
    model = bind(lambda requests: [{"y": request["x"]} for request in requests])
    with proxy(api.address) as address, Api(api.kind, address + base) as client:
        assert client.call("is_server_live") is True
        assert client.call("get_model_metadata", model)["name"] == model
        assert np.array_equal(client.infer(model, {"x": filled(3)})["y"], filled(3))
    with proxy(api.address) as address, Api(api.kind, f"{address}/other") as client:
        assert client.call("is_server_live") is False
