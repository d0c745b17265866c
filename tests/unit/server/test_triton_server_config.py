import shlex
from pathlib import Path

import pytest

from pytriton.config import NO_FLAGS, TritonConfig
from pytriton.exceptions import PyTritonError
from pytriton.server.triton_server_config import TritonServerConfig


def configured(**options: object) -> TritonServerConfig:
    config = TritonServerConfig()
    config.update_config(options)
    return config


def test_keys_are_read_in_both_spellings():
    config = TritonServerConfig()
    config["model-control-mode"] = "explicit"
    config["http_port"] = 8000
    assert (config["model_control_mode"], config["http-port"]) == ("explicit", 8000)


def test_an_option_that_is_not_set_reads_as_none_and_is_not_contained():
    config = configured(http_port=0)
    assert config["grpc-port"] is None
    assert "grpc-port" not in config
    assert config.get("grpc-port", 8001) == 8001
    assert "http-port" in config
    assert config.get("http-port", 8000) == 0


def test_setting_none_unsets_an_option():
    config = configured(http_port=1)
    config["http-port"] = None
    assert "http_port" not in config
    assert config.to_args_list() == []


@pytest.mark.parametrize("name", ["http-prot", "", "help", "http-port\n"])
def test_an_unknown_option_is_refused(name):
    with pytest.raises(PyTritonError, match="allowed_keys"):
        TritonServerConfig()[name] = 1


def test_allowed_keys_name_every_option_in_both_spellings():
    keys = TritonServerConfig.allowed_keys()
    assert {"model_control_mode", "model-control-mode", "id"} <= set(keys)
    assert set(TritonConfig().to_dict()) - NO_FLAGS <= set(keys)


def test_arguments_are_pairs_that_keep_spaces_and_equal_signs():
    config = configured(model_repository=Path("/a b/store"), cache_config=["local,size=1", "redis,host=h"])
    config["exit-on-error"] = True
    assert config.to_args_list() == [
        "--model-repository",
        "/a b/store",
        "--cache-config",
        "local,size=1",
        "--cache-config",
        "redis,host=h",
        "--exit-on-error",
        "True",
    ]


def test_the_only_flag_without_a_value_is_written_when_it_is_true():
    assert configured(disable_auto_complete_config=True).to_args_list() == ["--disable-auto-complete-config"]
    assert configured(disable_auto_complete_config=False).to_args_list() == []


def test_the_command_line_survives_a_shell():
    line = configured(log_file="/my logs/a=b.log", http_port=8000).to_cli_string()
    assert shlex.split(line) == ["--log-file=/my logs/a=b.log", "--http-port=8000"]


def test_a_copy_is_independent():
    items = ["local,size=1"]
    config = configured(cache_config=items)
    copy = config.copy()
    items.append("redis,host=h")
    copy["http-port"] = 1
    assert config.server_args() == {"cache-config": ["local,size=1"]}
    assert copy.server_args() == {"cache-config": ["local,size=1"], "http-port": 1}


def test_iteration_gives_the_options_that_are_set():
    assert dict(configured(http_port=1, id=None)) == {"http-port": 1}
