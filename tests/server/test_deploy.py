"""What deploy/ promises: its manifests are valid, and its container's command, probes and hooks do what they say."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml

from pytriton.client import ModelClient
from pytriton.client.exceptions import PyTritonClientError
from pytriton.exceptions import PyTritonValidationError
from pytriton.rest import RestConfig
from pytriton.triton import TritonSecurityConfig
from tests.server.ports import reserved_ports
from tests.server.processes import wait_for

pytestmark = pytest.mark.either_proxy

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
KUSTOMIZATIONS = ["base", "overlays/cpu", "overlays/gpu", "overlays/keda", "overlays/ray", "overlays/workers"]
DEPLOYMENT = yaml.safe_load((KUBERNETES / "base" / "deployment.yaml").read_text())
CONTAINER = DEPLOYMENT["spec"]["template"]["spec"]["containers"][0]
CHECKOUT = "/mnt"
# As the manifest says: nothing can be written but /tmp and /dev/shm, and no capability is left.
SANDBOX = f"""
set -e
mount --bind {shlex.quote(str(ROOT))} {CHECKOUT}
mount -t tmpfs -o size=512m tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro {CHECKOUT}
mount -o remount,bind,ro /
cd {CHECKOUT}/deploy
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


@pytest.fixture(scope="module")
def sandbox():
    """The beginning of a command that runs in a mount namespace of its own."""
    command = ["unshare", "--mount", "--propagation", "private"]
    if not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("unshare and setpriv (util-linux) are not installed")
    if subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode:
        pytest.skip("mount namespaces need root")
    return [*command, "sh", "-c", SANDBOX, "sandbox"]


@pytest.fixture
def pod(sandbox):
    """The container's own command, on free ports, with its probes' port."""
    entry = next(line for line in DOCKERFILE.read_text().splitlines() if line.startswith("ENTRYPOINT "))
    assert json.loads(entry.removeprefix("ENTRYPOINT ")) == ["pytriton", "serve"]
    python = CHECKOUT + str(Path(sys.prefix, "bin", "python")).removeprefix(str(ROOT))
    with reserved_ports(4) as (http, grpc, metrics, rest):
        arguments = [str(rest) if argument == "8080" else argument for argument in CONTAINER["args"]]
        ports = {"HTTP_PORT": http, "GRPC_PORT": grpc, "METRICS_PORT": metrics}
        process = subprocess.Popen(
            [*sandbox, python, "-m", "pytriton", "serve", *arguments],
            env={
                **os.environ,
                "PYTHONPATH": CHECKOUT,
                "PYTRITON_HOME": "/tmp/pytriton",
                **{f"PYTRITON_TRITON_CONFIG_{name}": str(port) for name, port in ports.items()},
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process, http, rest
        finally:
            process.kill()
            process.communicate()


def succeeds(probe, port):
    """What Kubernetes concludes from a probe."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}{probe['httpGet']['path']}") as answer:
        return 200 <= answer.status < 400
    return False


@pytest.mark.skipif(not str(sys.prefix).startswith(str(ROOT)), reason="the environment is not part of the checkout")
def test_a_pod_becomes_ready_and_its_hook_and_signal_lose_no_request_under_load(pod):
    process, http, rest = pod
    assert CONTAINER["ports"][0] == {"name": "http", "containerPort": 8000}
    wait_for(lambda: succeeds(CONTAINER["startupProbe"], http) or process.poll() is not None, "the start", 60)
    assert process.poll() is None, process.communicate()[1]
    assert succeeds(CONTAINER["readinessProbe"], http)
    assert succeeds(CONTAINER["livenessProbe"], http)
    wait_for(lambda: succeeds({"httpGet": {"path": "/health/ready"}}, rest), "the app")
    request = urllib.request.Request(f"http://127.0.0.1:{rest}/predict/shout", b'{"text": "what a day"}')
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {"result": "WHAT A DAY"}

    x = np.ones((1, 4), np.float32)
    routed = threading.Event()  # whether nodes still send requests to the pod
    routed.set()
    failed: list[Exception] = []
    answered = 0

    def call():
        nonlocal answered
        with ModelClient(f"http://127.0.0.1:{http}", "scale") as client:
            while routed.is_set():
                try:
                    np.testing.assert_array_equal(client.infer_batch(x)["y"], x * 2)
                    answered += 1
                except (PyTritonClientError, AssertionError) as error:
                    failed.append(error)
                    return

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    wait_for(lambda: answered >= 100 or failed, "requests to be answered")
    # The hook sleeps while nodes hear that the pod ends; they have by the time of the signal.
    assert CONTAINER["lifecycle"]["preStop"]["exec"]["command"][0] == "sleep"
    routed.clear()
    process.send_signal(signal.SIGTERM)
    for caller in callers:
        caller.join(60)
    assert not failed
    process.communicate(timeout=DEPLOYMENT["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
    assert process.returncode == 0


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_manifests_match_the_schemas_of_kubernetes(kustomization, tmp_path):
    validate = pytest.importorskip("kubernetes_validate")
    rendered = subprocess.run(
        ["kubectl", "kustomize", KUBERNETES / kustomization], capture_output=True, text=True, check=True
    )
    objects = [*yaml.safe_load_all(rendered.stdout)]
    kinds = {item["kind"] for item in objects}
    assert kinds >= {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "Secret"}
    for item in objects:
        if item["apiVersion"] != "keda.sh/v1alpha1":  # not Kubernetes' own
            assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "models"
            validate.validate(item, "1.30", strict=True)
    assert ("HorizontalPodAutoscaler" in kinds) != ("ScaledObject" in kinds)


def test_the_token_that_the_manifests_begin_with_is_refused():
    token = (KUBERNETES / "base" / "token").read_text().strip()
    with pytest.raises(PyTritonValidationError, match="stands in deploy/kubernetes for a token of yours"):
        TritonSecurityConfig(token)
    with pytest.raises(PyTritonValidationError, match="access_token is 'replace-me'"):
        RestConfig(access_token=token).validate()
    environment = {**os.environ, "PYTRITON_ACCESS_TOKEN_FILE": str(KUBERNETES / "base" / "token")}
    command = [sys.executable, "-m", "pytriton", "serve", *CONTAINER["args"]]
    ran = subprocess.run(command, cwd=ROOT / "deploy", env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode
    assert "stands in deploy/kubernetes for a token of yours" in ran.stderr


def test_files_name_only_files_that_are_there():
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text())
    for service in compose["services"].values():
        for volume in service.get("volumes", ()):
            assert (ROOT / "deploy" / "docker" / volume.split(":")[0]).exists(), volume
    assert (ROOT / compose["services"]["models"]["build"]["dockerfile"].replace("..", "")).is_file()
    copied = [line.split()[1] for line in DOCKERFILE.read_text().splitlines() if line.startswith("COPY deploy")]
    assert copied
    assert all((ROOT / path).is_file() for path in copied)
    for notes in KUBERNETES.rglob("*.yaml"):
        assert [*yaml.safe_load_all(notes.read_text())]
