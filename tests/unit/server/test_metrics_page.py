"""The page of metrics, and readers that go away."""

import logging
import socket
from socketserver import BaseRequestHandler

from pytriton.server.metrics_page import MetricsPage
from tests.server.processes import wait_for


class Lost(BaseRequestHandler):
    """Finds that its reader has gone."""

    def handle(self):
        raise ConnectionResetError("gone")


def test_a_reader_that_goes_away_is_no_news(capsys, caplog):
    caplog.set_level(logging.DEBUG, "pytriton.server")
    page = MetricsPage(Lost, "127.0.0.1", 0)
    try:
        for _ in range(3):
            socket.create_connection(("127.0.0.1", page.port)).close()
        wait_for(lambda: len(caplog.records) == 3, "the page to notice")
    finally:
        page.close()
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}
    assert capsys.readouterr() == ("", "")
