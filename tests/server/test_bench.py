"""The benchmark runs: its hosts start, answer rightly under load, and leave nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"


def test_a_short_soak_of_ours_and_raw_finds_no_problems(tmp_path):
    result = tmp_path / "result.json"
    ran = subprocess.run(
        [sys.executable, str(BENCH), "--soak", "0.02", "--json", str(result)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(result.read_text())
    assert found["problems"] == {"ours": [], "raw": []}
    assert all(min(soak["requests"].values()) > 0 for soak in found["soaks"])
    assert all("tritonserver" in sample["rss_bytes"] for soak in found["soaks"] for sample in soak["samples"])
