"""Archives of TorchServe, as its torch-model-archiver writes them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

HANDLER = """\
from words import COUNTED


class Handler:
    def initialize(self, context):
        self.unit = (context.system_properties["model_dir"] + "/unit.txt", context.manifest["model"]["modelName"])
        with open(self.unit[0]) as file:
            self.unit = file.read()

    def preprocess(self, requests):
        return [request.get("data") or request.get("body") for request in requests]

    def inference(self, texts):
        return [len(text) for text in texts]

    def postprocess(self, lengths):
        return [{COUNTED: length, "unit": self.unit} for length in lengths]

    def handle(self, requests, context):
        return self.postprocess(self.inference(self.preprocess(requests)))
"""
FILES = {"handler.py": HANDLER, "words.py": "COUNTED = 'length'\n", "unit.txt": "letters"}


def archive(path: Path, files: dict[str, str] | None = None, handler: str = "handler.py", name: str = "count") -> Path:
    """Write an archive with these files."""
    manifest = {
        "createdOn": "27/11/2026 10:00:00",
        "runtime": "python",
        "model": {"modelName": name, "handler": handler, "modelVersion": "1.0"},
        "archiverVersion": "0.12.0",
    }
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        for inner, text in (FILES if files is None else files).items():
            written.writestr(inner, text)
    return path
