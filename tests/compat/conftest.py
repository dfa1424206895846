"""The clients that Queen publishes, each version in a directory of its own."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CLIENTS = Path(__file__).parents[2] / "build" / "clients"


@pytest.fixture(scope="session")
def install_client():
    """Install a version of `queen-mq`, unmodified, and return the directory to import it from.

    All versions are imported as `queen`, so none of them can be in our own environment. What was
    installed is kept between runs.
    """

    def install(version):
        directory = CLIENTS / f"queen-mq-{version}"
        if not directory.exists():
            CLIENTS.mkdir(parents=True, exist_ok=True)
            # Beside its place, and moved there when complete: an interrupted run leaves no half.
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=CLIENTS))
            options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
            wanted = ["--target", str(unfinished), f"queen-mq=={version}"]
            command = [sys.executable, "-m", "pip", "install", *options, *wanted]
            try:
                subprocess.run(command, check=True, timeout=100)
                unfinished.rename(directory)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return directory

    return install
