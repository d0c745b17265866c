"""A server within this process: its life, its models and what it says of itself."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytriton.inprocess import (
    InternalError,
    InvalidArgumentError,
    ModelBatchFlag,
    ModelControlMode,
    ModelTxnPropertyFlag,
    NotFoundError,
    Options,
    Server,
    TritonError,
    UnavailableError,
)
from tests.server.inprocess_repository import write_echo, write_model
from tests.server.proxies import native_part_only
from tests.unit.children import in_child

pytestmark = [pytest.mark.either_proxy, native_part_only]
EXPLICIT = ModelControlMode.EXPLICIT
CONFIGURATION = {
    "backend": "python",
    "max_batch_size": 3,
    "input": [{"name": "in_FP32", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "out_FP32", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    write_echo(folder)
    write_echo(folder, "second")
    write_model(folder, "broken", "raise ValueError('broken on purpose')", "")
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    with Server(
        model_repository=str(repository), model_control_mode=EXPLICIT, startup_models=["echo"], server_id="mine"
    ) as server:
        yield server


@pytest.fixture
def empty(tmp_path: Path) -> Server:
    """One that is not started, without models."""
    return Server(model_repository=str(tmp_path), model_control_mode=EXPLICIT)


def test_a_started_server_is_live_and_ready(server: Server):
    assert server.live() is True
    assert server.ready() is True


def test_a_server_says_who_it_is(server: Server):
    metadata = server.metadata()
    assert metadata["name"] == "mine"
    assert metadata["version"].startswith("2.")
    assert "model_repository" in metadata["extensions"]


def test_metrics_are_text_for_prometheus(server: Server):
    assert "# TYPE nv_inference_request_success counter" in server.metrics()


def test_metrics_have_one_format(server: Server):
    with pytest.raises(InvalidArgumentError, match=r"'json'; give MetricFormat\.PROMETHEUS"):
        server.metrics("json")  # type: ignore[arg-type]


def test_models_are_found_by_name_and_by_version(server: Server):
    models = server.models()
    assert models["echo", 1].state == "READY"
    assert models["broken", -1].state is None
    assert (models["echo"].name, models["echo"].version) == ("echo", -1)
    assert "echo" in models
    assert "other" not in models
    assert models.get("other") is None
    assert models.get("echo", None).name == "echo"
    with pytest.raises(KeyError):
        models["other"]


def test_models_that_cannot_be_called_are_left_out_if_wanted(server: Server):
    assert [*server.models(exclude_not_ready=True)] == [("echo", 1)]


def test_a_model_describes_itself(server: Server):
    model = server.model("echo")
    assert model.ready()
    assert model.metadata()["inputs"][0] == {"name": "in_BOOL", "datatype": "BOOL", "shape": [-1, -1]}
    assert model.config()["max_batch_size"] == 8
    assert [each["name"] for each in model.statistics()["model_stats"]] == ["echo"]
    assert model.batch_properties() == ModelBatchFlag.FIRST_DIM
    assert model.transaction_properties() == ModelTxnPropertyFlag.ONE_TO_ONE
    assert repr(server.models()["echo", 1]) == "Model(name='echo', version=1, state='READY')"


@pytest.mark.parametrize("method", ["metadata", "config", "statistics", "batch_properties", "transaction_properties"])
def test_a_model_that_does_not_exist_is_not_found(server: Server, method: str):
    with pytest.raises((NotFoundError, InvalidArgumentError), match="other"):
        getattr(server.model("other"), method)()


def test_a_model_that_does_not_exist_is_not_ready(server: Server):
    assert not server.model("other").ready()


def test_a_configuration_has_one_layout(server: Server):
    with pytest.raises(TritonError, match="version"):
        server.model("echo").config(config_version=2)
    for wrong in ("1", -1):
        with pytest.raises(InvalidArgumentError, match="config_version is"):
            server.model("echo").config(config_version=wrong)  # type: ignore[arg-type]


def test_a_model_is_loaded_and_unloaded(server: Server):
    model = server.load("second")
    assert model.ready()
    server.unload(model, wait_until_unloaded=True, polling_interval=0.01)
    assert server.models()["second", 1].state == "UNAVAILABLE"
    assert server.models()["second", 1].reason == "unloaded"


def test_unloading_takes_the_models_that_consist_of_it_along_if_wanted(server: Server):
    server.load("second")
    server.unload("second", unload_dependents=True, wait_until_unloaded=True, polling_interval=0.01)
    assert not server.model("second").ready()


def test_a_wait_for_unloading_that_times_out_is_an_error(server: Server):
    server.load("second")
    with pytest.raises(UnavailableError, match="'second' was not unloaded within 0"):
        server.unload("second", wait_until_unloaded=True, timeout=0)
    server.unload("second", wait_until_unloaded=True, polling_interval=0.01)


def test_a_model_is_loaded_with_a_configuration_of_the_callers(server: Server):
    assert server.load("second", {"config": json.dumps(CONFIGURATION)}).config()["max_batch_size"] == 3
    server.unload("second", wait_until_unloaded=True, polling_interval=0.01)


def test_a_model_is_loaded_from_files_of_the_callers(server: Server, repository: Path):
    version = repository / "echo" / "1"
    files = {f"file:1/{each.name}": each.read_bytes() for each in version.glob("*.py")}
    assert server.load("given", {"config": json.dumps(CONFIGURATION), **files}).ready()
    server.unload("given", wait_until_unloaded=True, polling_interval=0.01)


def test_a_parameter_of_no_known_kind_is_refused(server: Server):
    with pytest.raises(InvalidArgumentError, match="config is a list; give a text in JSON"):
        server.load("second", {"config": []})  # type: ignore[dict-item]


def test_a_model_that_cannot_be_loaded_says_why(server: Server):
    with pytest.raises(InvalidArgumentError, match="broken on purpose"):
        server.load("broken")


def test_a_model_without_files_cannot_be_loaded(server: Server):
    with pytest.raises(TritonError, match="other"):
        server.load("other")


def test_a_registered_repository_brings_its_models_under_the_names_it_is_given(empty: Server, repository: Path):
    with empty as server:
        assert server.register_model_repository(str(repository), {"echo": "mapped"}) is server
        assert "mapped" in server.models()
        assert server.load("mapped").ready()
        server.unload("mapped", wait_until_unloaded=True, polling_interval=0.01)
        assert server.unregister_model_repository(str(repository)) is server
        assert len(server.models()) == 0


def test_polling_finds_new_models(tmp_path: Path):
    with Server(model_repository=str(tmp_path), model_control_mode=ModelControlMode.POLL) as server:
        assert len(server.models()) == 0
        write_echo(tmp_path)
        assert server.poll_model_repository() is server
        assert server.model("echo").ready()


def test_what_the_control_mode_excludes_is_refused_by_the_server(server: Server, tmp_path: Path):
    with pytest.raises(TritonError, match="polling is disabled"):
        server.poll_model_repository()
    with Server(model_repository=str(tmp_path)) as other, pytest.raises(TritonError, match="not allowed"):
        other.load("echo")


@pytest.mark.parametrize(
    "call",
    [
        lambda server: server.live(),
        lambda server: server.ready(),
        lambda server: server.metadata(),
        lambda server: server.metrics(),
        lambda server: server.model("echo"),
        lambda server: server.models(),
        lambda server: server.load("echo"),
        lambda server: server.unload("echo"),
        lambda server: server.register_model_repository("/"),
        lambda server: server.unregister_model_repository("/"),
        lambda server: server.poll_model_repository(),
        lambda server: server.stop(),
    ],
)
def test_a_server_that_is_not_started_can_only_be_started(empty: Server, call: Any):
    with pytest.raises(InvalidArgumentError, match="not started"):
        call(empty)


def test_a_model_of_a_stopped_server_says_so(empty: Server):
    with empty:
        model = empty.model("echo")
    with pytest.raises(InvalidArgumentError, match="not started"):
        model.ready()


def test_a_stopped_server_starts_again(empty: Server):
    assert empty.start(wait_until_ready=True) is empty
    assert empty.stop() is empty
    assert empty.start().ready()
    empty.stop()


def test_a_started_server_does_not_start_again(server: Server):
    with pytest.raises(InvalidArgumentError, match="started already"):
        server.start()


def test_threads_that_start_one_server_at_the_same_time_start_it_once(empty: Server):
    def start() -> bool:
        together.wait()
        try:
            empty.start()
        except InvalidArgumentError:
            return False
        return True

    together = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda _: start(), range(4))) == [False] * 3 + [True]
    assert empty.ready()
    empty.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "pytriton-inprocess-stop"]


@pytest.mark.parametrize("wrong", [{"polling_interval": "1"}, {"timeout": []}, {"timeout": -1}])
def test_a_wait_takes_seconds(empty: Server, wrong: Any):
    with pytest.raises(InvalidArgumentError, match="give a number of seconds"):
        empty.start(wait_until_ready=True, **wrong)


def test_a_context_stops_what_was_started_before(empty: Server):
    with empty.start():
        pass
    with pytest.raises(InvalidArgumentError):
        empty.live()


def test_servers_of_one_process_know_their_own_models(server: Server, empty: Server):
    with empty:
        assert len(empty.models()) == 0
        assert not empty.model("echo").ready()
        assert server.model("echo").ready()
    assert server.model("echo").ready()


def test_a_repository_that_does_not_exist_is_an_error(tmp_path: Path):
    with pytest.raises(InternalError, match="nowhere"):
        Server(model_repository=str(tmp_path / "nowhere")).start()


def test_a_start_with_a_broken_model_fails_unless_it_may_go_on(repository: Path, tmp_path: Path):
    broken = tmp_path / "broken"
    broken.symlink_to(repository / "broken")
    with pytest.raises(InternalError, match="failed to load all models"):
        Server(model_repository=str(tmp_path)).start()
    with Server(model_repository=str(tmp_path), exit_on_error=False) as server:
        assert server.models()["broken", 1].state == "UNAVAILABLE"
        assert "broken on purpose" in str(server.models()["broken", 1].reason)
        assert not server.ready()
        server.stop()
        with pytest.raises(UnavailableError, match="not ready within 0"):
            server.start(wait_until_ready=True, timeout=0)


def test_options_and_their_fields_are_not_given_both():
    with pytest.raises(InvalidArgumentError, match="not both: server_id"):
        Server(Options(), server_id="x")


def test_a_field_that_options_do_not_have_is_refused():
    with pytest.raises(InvalidArgumentError, match="'server_name'"):
        Server(server_name="x")


def test_a_forked_process_gets_a_clear_error(server: Server, empty: Server):
    def call_both() -> None:
        for call in (server.live, empty.start):
            with pytest.raises(InvalidArgumentError, match=r"^this process was forked from"):
                call()

    in_child(call_both)
    assert server.live()


def test_a_start_changes_no_variable_of_the_environment(empty: Server):
    before = dict(os.environ)
    with empty:
        assert dict(os.environ) == before
