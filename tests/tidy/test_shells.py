"""No shell is ever started: what a request says can then never be run."""

import ast

import pytest

from tests.tidy.tree import files, short

SHELLS = {
    "os.system",
    "os.popen",
    "asyncio.create_subprocess_shell",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
}
INTERPRETERS = {"sh", "bash", "/bin/sh", "/bin/bash"}


def shell_calls(source):
    """Yield the lines that start a shell."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in SHELLS:
            yield node.lineno
        elif isinstance(node, ast.keyword) and node.arg == "shell":
            yield node.value.lineno
        elif isinstance(node, ast.Constant) and node.value in INTERPRETERS:
            yield node.lineno


@pytest.mark.parametrize("path", files("src", suffix=".py"), ids=short)
def test_defect_47_no_request_can_reach_a_shell(path):
    assert list(shell_calls(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    ["os.system('x')", "run(x, shell=True)", "run(['bash', '-c', x])", "os.popen(x)"],
)
def test_the_search_finds_what_it_is_looking_for(source):
    assert list(shell_calls(source)) == [1]


@pytest.mark.parametrize("package", ["server", "broker", "engine", "model"])
def test_what_serves_requests_starts_no_programs(package):
    importing = [
        short(path)
        for path in files(f"src/skep/{package}", suffix=".py")
        if "import subprocess" in path.read_text()
    ]

    assert importing == []
