"""What the tests of the benchmark share."""

import http.server
import json
import threading

import pytest


@pytest.fixture
def answering():
    """A server of HTTP that gives the answers in a list, one after the other; its port, and that list."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(answers.pop(0)).encode()
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    answers = []
    Handler.protocol_version = "HTTP/1.1"
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, answers
        server.shutdown()
        thread.join()
