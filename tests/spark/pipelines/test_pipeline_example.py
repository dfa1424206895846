"""The example in `examples/` runs as it is, and draws its plot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_pipeline.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_computes_and_draws(database_url, tmp_path):
    plot = tmp_path / "revenue.png"

    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), "--plot", str(plot), "--database-url", database_url],
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path)},
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "read 213 orders" in ended.stdout
    assert "210 orders in them" in ended.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.stat().st_size > 10_000
