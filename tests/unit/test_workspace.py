import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from pytriton import constants
from pytriton.exceptions import PyTritonValidationError
from pytriton.utils.workspace import CleanupWarning, Workspace
from pytriton.wire.connect import short_path
from tests.server.processes import wait_for
from tests.unit.children import in_child


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "below" / "home"
    monkeypatch.setattr(constants, "PYTRITON_HOME", folder)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_workspace_without_a_path_is_a_new_folder_below_the_home(home):
    first, second = Workspace(), Workspace()
    assert first.path.parent == second.path.parent == home
    assert first.path != second.path
    assert first.path.name.startswith("workspace_")
    assert first.exists()


def test_a_new_one_removes_what_a_killed_process_left_behind_and_nothing_else(home):
    (home / "workspace_of_somebody").mkdir(parents=True)
    (home / "kept").mkdir()
    living = Workspace()
    program = "from pytriton.utils.workspace import Workspace; w = Workspace(); print(w.path, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTRITON_HOME": str(home)},
    )
    abandoned = Path(process.stdout.readline().strip())
    between = Workspace()
    assert abandoned.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert abandoned.exists()
    Workspace().clean()
    kept = {"kept", "workspace_of_somebody", living.path.name, between.path.name}
    assert {entry.name for entry in home.iterdir()} == kept


def test_what_cannot_be_removed_from_shared_memory_does_not_keep_the_rest(home):
    left = home / "workspace_left"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    regions = [Path(f"/dev/shm/{left.name}-{os.getpid()}-{number}") for number in range(3)]
    foreign = Path(f"/dev/shm/{left.name}-{os.getpid()}-foreign")
    try:
        for region in regions:
            region.touch()
        foreign.mkdir()  # which nobody can unlink; tmpfs lists what is new first
        Workspace()
        assert not left.exists()
        assert not any(region.exists() for region in regions)
    finally:
        foreign.rmdir()
        for region in regions:
            region.unlink(missing_ok=True)


def test_what_the_server_of_a_killed_process_left_is_removed_if_its_guard_was_killed_too(home, tmp_path):
    server = home / "workspace_left" / f"pytriton-{os.getpid()}"
    server.mkdir(parents=True)
    (server.parent / ".lock").touch()
    noted, other = tmp_path / "noted", tmp_path / "other"
    for folder in (noted, other):
        folder.mkdir()
        (folder / "file").touch()
    (server / "temporary-folders").write_bytes(bytes(noted) + b"\0")
    region = Path(f"/dev/shm/{server.name}-region")
    region.touch()
    try:
        Workspace()
        assert not any(path.exists() for path in (server, noted, region))
        assert other.exists()
    finally:
        region.unlink(missing_ok=True)


def test_a_given_path_is_never_swept(home):
    given = Workspace(home / "workspace_given")
    folder = given.path
    del given
    Workspace()
    assert folder.exists()


def test_a_relative_home_gives_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "PYTRITON_HOME", Path("home"))
    assert Workspace().path.parent == tmp_path / "home"


def test_a_given_path_is_created_with_its_parents(tmp_path):
    workspace = Workspace(str(tmp_path / "a" / "b"))
    assert workspace.path == tmp_path / "a" / "b"
    assert workspace.model_store_path == tmp_path / "a" / "b" / "model-store"
    assert workspace.model_store_path.is_dir()


def test_only_the_owner_may_enter(home, tmp_path):
    assert mode(Workspace().path) == mode(Workspace(tmp_path / "given").path) == 0o700


def test_a_path_that_exists_is_refused_and_left_alone(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(FileExistsError, match="does not exist yet"):
        Workspace(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["precious"]


def test_a_home_that_cannot_be_created_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "PYTRITON_HOME", tmp_path / "file" / "home")
    with pytest.raises(PyTritonValidationError, match=r"PYTRITON_HOME=.*file/home.*set the environment variable"):
        Workspace()


def test_hidden_entries_do_not_count_as_content(tmp_path):
    workspace = Workspace(tmp_path / "w")
    assert not workspace.is_empty()
    workspace.model_store_path.rmdir()
    (workspace.path / ".hidden").mkdir()
    (workspace.path / ".hidden" / "file").touch()
    assert workspace.is_empty()


def test_clean_removes_everything_and_may_be_called_again(tmp_path):
    workspace = Workspace(tmp_path / "w")
    (workspace.model_store_path / "model").mkdir()
    (workspace.model_store_path / "model" / "config.pbtxt").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        workspace.clean()
        workspace.clean()
    assert not workspace.exists()
    assert workspace.is_empty()


def test_clean_warns_when_the_folder_cannot_be_removed(tmp_path):
    workspace = Workspace(tmp_path / "w")
    moved = workspace.path.rename(tmp_path / "elsewhere")
    workspace.path.symlink_to(moved)  # which rmtree refuses, whoever the user is
    with pytest.warns(CleanupWarning, match="remove it by hand"):
        workspace.clean()
    assert moved.is_dir()


def test_a_forked_child_does_not_remove_its_parents_workspace(home):
    workspace = Workspace()
    in_child(workspace.clean)
    assert workspace.exists()
    workspace.clean()
    assert not workspace.exists()


def test_a_child_that_lives_on_does_not_keep_the_workspace_of_a_killed_process(home):
    program = (
        "import os, signal\n"
        "from pytriton.utils.workspace import Workspace\n"
        "workspace = Workspace()\n"
        "if not (child := os.fork()): signal.pause()\n"
        "print(child, workspace.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTRITON_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        child, folder = process.stdout.readline().split()
        process.wait()
        try:
            assert Path(folder).exists()

            def is_swept():
                Workspace().clean()
                return not Path(folder).exists()

            wait_for(is_swept, "the child to drop the lock, and the next workspace to remove the folder")
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_cleaner_that_asks_for_the_lock_of_the_folder_does_not_get_it(home, tmp_path):
    """As systemd-tmpfiles does, which then leaves the folder alone with all that it holds."""
    for workspace in (Workspace(), Workspace(tmp_path / "given")):
        folder = os.open(workspace.path, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(folder)


def test_what_is_kept_is_there_again_after_a_removal_and_repair(home):
    workspace = Workspace()
    (workspace.path / "sockets").mkdir()
    path, file = workspace.path / "sockets" / "0.0", workspace.path / "sockets" / "file"
    file.write_text("shared")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with short_path(str(path)) as address:
            listener.bind(address)
        listener.listen()
        workspace.keep("sockets/*")
        assert not workspace.repair()
        shutil.rmtree(workspace.path)
        assert workspace.repair()
        assert not workspace.repair()
        assert mode(workspace.path) == 0o700
        assert file.read_text() == "shared"
        with short_path(str(path)) as address:
            client.connect(address)
        listener.accept()[0].close()
    Workspace().clean()  # which removes those of processes that were killed
    assert workspace.exists()
    workspace.clean()
    assert not workspace.exists()


def test_what_was_removed_on_purpose_is_not_kept(home):
    workspace = Workspace()
    (workspace.path / "sockets").mkdir()
    file, other = (workspace.path / "sockets" / name for name in ("0.0", "1.0"))
    other.touch()
    for text in ("first", "second"):
        file.write_text(text)
        workspace.keep("sockets/*")
        file.unlink()
        workspace.forget(workspace.path / "sockets" / "0", if_missing=True)
    assert not workspace.repair()
    assert not file.exists()
    other.unlink()
    workspace.forget(workspace.path / "sockets" / "1")
    assert not workspace.repair()


def test_what_is_kept_survives_a_removal_that_is_under_way(home):
    workspace = Workspace()
    (workspace.path / "sockets").mkdir()
    files = [workspace.path / "sockets" / name for name in ("0.0", "0.1")]
    for file in files:
        file.touch()
    workspace.keep("sockets/*")
    files[0].unlink()
    workspace.keep("sockets/*")
    shutil.rmtree(workspace.path / "sockets")
    workspace.forget(workspace.path / "sockets" / "0", if_missing=True)
    assert workspace.repair()
    assert all(file.exists() for file in files)
