"""The texts of an image's folder: for Docker, for Docker Compose, and for Kubernetes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pytriton.exceptions import PyTritonValidationError

__all__ = ["texts_of"]

PACKAGE = Path(__file__).parents[1]
BASES = (PACKAGE.parent / "deploy" / "kubernetes" / "base", PACKAGE / "deploy" / "base")  # of a checkout, of a wheel
COMPILED = {"llama-cpp-python"}  # distributions without wheels: images that are not slim have a compiler
LIBRARIES = {"lightgbm": "libgomp1", "llama-cpp-python": "libgomp1"}  # Debian's, which wheels need and slim images lack
DEBIANS = {"bookworm": (2, 36), "trixie": (2, 41)}  # and the version of its glibc

DOCKERFILE = """\
# Made by pytriton build. docs/deployment.md explains the settings.
#
#   docker build -t {image} .
#   docker run --rm -p 8000-8002:8000-8002 -p 8080:8080 --read-only --tmpfs /tmp --cap-drop ALL {image}
FROM {builder} AS build
COPY requirements.lock /build/requirements.lock
COPY wheels /build/wheels
RUN python -m venv /opt/models
RUN /opt/models/bin/pip install --no-cache-dir --no-compile --no-deps {source}--requirement /build/requirements.lock
RUN /opt/models/bin/pip install --no-cache-dir --no-compile --no-deps --no-index /build/wheels/{wheel}

FROM {base}
{packages}RUN useradd --system --uid 10001 --home-dir /models models
COPY --from=build /opt/models /opt/models
COPY models /models
USER 10001
WORKDIR /models
# The workspace: small files and sockets. With --read-only it needs --tmpfs /tmp.
ENV PATH=/opt/models/bin:$PATH PYTRITON_HOME=/tmp/pytriton PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000 8001 8002 8080
# SIGTERM finishes requests in flight, for up to exit_timeout_secs (30 s): docker stop --time 45.
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s --start-interval=1s --interval=10s --timeout=5s \\
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=4)"]
ENTRYPOINT {entry}
CMD {arguments}
"""
COMPOSE = """\
# PYTRITON_ACCESS_TOKEN=$(openssl rand -hex 24) docker compose up --build
services:
  models:
    build: .
    image: {image}
    ports: ["8000:8000", "8001:8001", "8080:8080"]
    environment: {{PYTRITON_ACCESS_TOKEN_FILE: /run/secrets/token}}
    secrets: [token]
    read_only: true
    tmpfs: ["/tmp"]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    stop_grace_period: 45s
    restart: unless-stopped

secrets:
  token: {{environment: PYTRITON_ACCESS_TOKEN}}
"""
PACKAGES = """\
RUN apt-get update && apt-get install --yes --no-install-recommends {names} && rm -rf /var/lib/apt/lists/*
"""
KUSTOMIZATION = """\
# kubectl apply -k . after the image is in your registry; base/token is the access token to replace.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [base]
images:
  - {{name: registry.example.com/models, newName: {repository}, newTag: "{tag}"}}
patches:
  - target: {{kind: Deployment, name: models}}
    patch: |
      - {{op: replace, path: /spec/template/spec/containers/0/args, value: {arguments}}}
"""


def texts_of(
    command: Sequence[str], image: str, wheel: str, distributions: Collection[str], *, is_vendored: bool
) -> Mapping[str, str]:
    """The texts, by the paths of their files.

    Args:
        command: What the container runs.
        image: Its name, with a tag.
        wheel: The file name of our own wheel.
        distributions: That are installed, by their normalized names.
        is_vendored: Whether the folder has the wheels of all distributions.

    Raises:
        PyTritonValidationError: No image of Debian has the glibc of this machine; or the manifests are not installed.
    """
    repository, _, tag = image.rpartition(":")
    if not repository or "/" in tag:
        raise PyTritonValidationError(f"the image's name {image!r} has no tag; name it like models:1")
    split = 2 if command[0] == "pytriton" else 1
    arguments = json.dumps([*command[split:]])
    slim, libraries = _base_image(), sorted({LIBRARIES[each] for each in LIBRARIES.keys() & {*distributions}})
    dockerfile = DOCKERFILE.format(
        image=image,
        base=slim,
        builder=slim if COMPILED.isdisjoint(distributions) else slim.replace("-slim", ""),
        packages=PACKAGES.format(names=" ".join(libraries)) if libraries else "",
        source="--no-index --find-links /build/wheels --require-hashes " if is_vendored else "",
        wheel=wheel,
        entry=json.dumps([*command[:split]]),
        arguments=arguments,
    )
    texts = {"Dockerfile": dockerfile, "compose.yaml": COMPOSE.format(image=image)}
    texts["kubernetes/kustomization.yaml"] = KUSTOMIZATION.format(repository=repository, tag=tag, arguments=arguments)
    base = next((each for each in BASES if each.is_dir()), None)
    if base is None:
        raise PyTritonValidationError("the manifests of Kubernetes are not installed; install the package again")
    texts |= {f"kubernetes/base/{each.name}": each.read_text() for each in sorted(base.iterdir())}
    return texts


def _base_image() -> str:
    """The image of this Python on the oldest Debian with the glibc that our libraries here need."""
    found = os.confstr("CS_GNU_LIBC_VERSION") or ""
    version = tuple(map(int, found.rpartition(" ")[2].split(".")[:2]))
    debian = next((name for name, glibc in DEBIANS.items() if version <= glibc), None)
    if debian is None:
        raise PyTritonValidationError(f"this machine has {found}, newer than that of any known image; build on another")
    return f"python:{sys.version_info.major}.{sys.version_info.minor}-slim-{debian}"
