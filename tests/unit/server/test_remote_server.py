"""Loads at a server that another process launched, and which ends or hangs meanwhile."""

import socket

import pytest

from pytriton.exceptions import PyTritonModelControlError
from pytriton.model_config.generator import ModelConfigGenerator
from pytriton.model_config.parser import ModelConfigParser
from pytriton.remote import RemoteServer
from pytriton.server import model_server
from pytriton.server.access import Access
from tests.unit.loopback import CONFIG, LocalServer, ModelHandler, serving

LOAD = "/v2/repository/models/m/load"


class Handler(ModelHandler):
    def do_POST(self):
        if self.path == LOAD and self.server.ends:
            self.server.ends -= 1
            self.server.requests.append((self.path, {}))
            self.close_connection = True
        else:
            self.do_GET()


@pytest.mark.parametrize("ends", [1, 2])
def test_a_model_is_loaded_once_more_if_the_server_ends_and_comes_back(tmp_path, ends):
    ModelConfigGenerator(ModelConfigParser.from_dict(CONFIG)).to_file(tmp_path / "m" / "config.pbtxt")
    with serving(LocalServer(Handler)) as server:
        server.requests, server.token, server.ends = [], None, ends
        remote = RemoteServer(Access(f"http://127.0.0.1:{server.server_port}", {}), tmp_path)
        if ends == 1:
            remote.load("m")
        else:
            with pytest.raises(PyTritonModelControlError, match="closed the connection"):
                remote.load("m")
        assert [path for path, _ in server.requests].count(LOAD) == 2


def test_a_wait_for_a_server_that_hangs_ends_when_it_is_over_or_no_longer_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr(model_server, "ASK_AGAIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # it connects clients, and answers nothing
        remote = RemoteServer(Access(f"http://127.0.0.1:{hangs.getsockname()[1]}", {}), tmp_path)
        wanted = iter([True, True, False])
        assert "is_server_live" in remote.wait_ready(3600.0, lambda: next(wanted))
        assert "is_server_live" in remote.wait_ready(0.01, lambda: True)
