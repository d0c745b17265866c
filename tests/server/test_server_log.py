"""The server's own log, as records of Python."""

import logging

from pytriton.server.log import LOGGER
from tests.server.own_server import serving
from tests.unit.test_server_log import Records


def test_the_servers_log_is_copied_to_standard_output_by_default(free_config, capfd):
    with serving(free_config):
        pass
    assert "successfully loaded 'm'" in capfd.readouterr().out


def test_the_servers_log_becomes_records_once_its_logger_is_configured(free_config, capfd):
    handler = Records()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        with serving(free_config):
            pass
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(logging.NOTSET)
    assert capfd.readouterr().out == ""
    records = [record for record in handler.records if record.filename.endswith(".cc")]
    (loaded,) = [record for record in records if "successfully loaded 'm'" in record.getMessage()]
    assert (loaded.name, loaded.levelno, loaded.getMessage()) == ("pytriton.server", logging.INFO, loaded.getMessage())
    assert {record.levelno for record in records} >= {logging.INFO}
    (options,) = [record for record in records if "server_version" in record.getMessage()]
    lines = options.getMessage().splitlines()
    assert (lines[0][0], lines[-1][0], len(lines) > 10) == ("+", "+", True)
