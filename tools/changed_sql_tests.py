"""Print the folders of SQL tests that a change concerns, for `make check`.

A change is what the working tree has beyond the newest commit that is also upstream, or beyond the
last commit where there is no upstream. A changed SQL function, or a changed test of one, names its
topic; a change of the shared parts (migrations, views, support modules) names them all.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FUNCTIONS = "src/skep/db/sql/functions/"
TESTS = "tests/sql/"
SHARED = ("src/skep/db/", "tests/sql/support/", "tests/sql/conftest.py", "tests/support/")


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none when it fails."""
    command = ["git", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout.splitlines() if run.returncode == 0 else []


def concerned(changed: list[str]) -> set[str]:
    """Return the test folders for these files."""
    folders: set[str] = set()
    for path in changed:
        for start in (FUNCTIONS, TESTS):
            if path.startswith(start) and not path.startswith(SHARED[1:]):
                folders.add(TESTS + path.removeprefix(start).rpartition("/")[0])
                break
        else:
            if path.startswith(SHARED):
                return {TESTS.rstrip("/")}
    return {folder for folder in folders if (ROOT / folder).is_dir()}


def main() -> None:
    """Print the folders on one line."""
    base = git("merge-base", "HEAD", "@{upstream}") or ["HEAD"]
    changed = git("diff", "--name-only", base[0])
    changed += git("ls-files", "--others", "--exclude-standard")
    sys.stdout.write(" ".join(sorted(concerned(changed))))


if __name__ == "__main__":
    main()
