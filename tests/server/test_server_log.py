"""The server's own log, as records of Python."""

import logging
from dataclasses import replace

import pytest

from pytriton.server.log import LOGGER
from tests.server.own_server import serving
from tests.unit.server.test_server_log import Records

pytestmark = pytest.mark.either_proxy


def test_a_program_that_asks_for_info_sees_where_models_are_and_no_details_of_the_server(free_config, capfd, caplog):
    with caplog.at_level(logging.INFO), serving(free_config) as triton:
        triton.run()
    texts = "\n".join(caplog.messages)
    assert "available as model" in texts
    assert not [text for text in ("CudaDriverHelper", "successfully loaded", "server_version", "+--") if text in texts]
    assert capfd.readouterr().out == ""


def test_a_verbose_log_is_copied_to_standard_output(free_config, capfd):
    with serving(replace(free_config, log_verbose=1)):
        pass
    assert "successfully loaded 'm'" in capfd.readouterr().out


def test_the_servers_log_becomes_records_where_debug_is_logged(free_config, capfd):
    handler = Records()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        with serving(free_config):
            pass
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(logging.NOTSET)
    assert capfd.readouterr().out == ""
    records = [record for record in handler.records if record.filename.endswith(".cc")]
    (loaded,) = [record for record in records if "successfully loaded 'm'" in record.getMessage()]
    assert (loaded.name, loaded.levelno, loaded.getMessage()) == ("pytriton.server", logging.DEBUG, loaded.getMessage())
    (options,) = [record for record in records if "server_version" in record.getMessage()]
    lines = options.getMessage().splitlines()
    assert (lines[0][0], lines[-1][0], len(lines) > 10) == ("+", "+", True)
