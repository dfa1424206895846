"""The files of deploy/: they parse, ask for no rights, and set only settings that exist."""

import re
import shutil
import subprocess

import pytest
import yaml

from skep.cli.commands import app
from skep.settings import load_settings
from tests.tidy.tree import ROOT, files, short

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNIT = DEPLOY / "systemd" / "skep.service"
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
SAMPLES = {
    "SKEP_DATABASE_URL": "postgresql://skep@postgres/skep",
    "SKEP_PEER_SECRET": "shared",
}
"""What stands in for values that come from outside."""

COMMANDS = {command.name or command.callback.__name__ for command in app.registered_commands}


def manifests():
    return [
        document
        for path in files("deploy/kubernetes", suffix=".yaml")
        for document in yaml.safe_load_all(path.read_text())
    ]


def pods():
    """Return the pods that the manifests describe, by the name of what makes them."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests()
        if "template" in each["spec"]
    }


def services():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def our_services():
    return {name: each for name, each in services().items() if each["image"] == "skep"}


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


def effective(variables):
    """Return the settings that these variables make; all of them must mean something."""
    known = {name: SAMPLES.get(name, value) for name, value in variables.items()}
    found = load_settings(environment=known)
    assert found.warnings == ()
    return found.settings


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Keep a `skep.toml` of the developer's own out of it."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", files("deploy", suffix=".yaml"), ids=short)
def test_a_manifest_parses(path):
    assert all(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("name", pods())
def test_a_pod_runs_without_rights(name):
    pod = pods()[name]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]


@pytest.mark.parametrize("name", pods())
def test_a_pod_runs_a_command_with_settings_that_exist(name):
    (container,) = pods()[name]["containers"]

    effective({each["name"]: each.get("value", "from a secret") for each in container["env"]})
    assert container["args"][0] in COMMANDS


def test_a_pod_has_time_to_drain_before_it_is_killed():
    pod = pods()["skep"]
    (container,) = pod["containers"]
    settings = effective({each["name"]: each.get("value", "") for each in container["env"]})
    pause_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])

    assert pod["terminationGracePeriodSeconds"] > pause_s + settings.shutdown_grace_s + 5


def test_a_pod_is_probed_where_the_broker_answers():
    (container,) = pods()["skep"]["containers"]

    paths = {
        kind: container[kind]["httpGet"]["path"]
        for kind in ("livenessProbe", "readinessProbe", "startupProbe")
    }

    # A database that is away must not restart the broker.
    assert paths == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
        "startupProbe": "/livez",
    }


def test_the_services_name_ports_and_pods_that_exist():
    ports = {port["name"] for port in pods()["skep"]["containers"][0]["ports"]}
    found = [each for each in manifests() if each["kind"] == "Service"]

    assert {port["targetPort"] for each in found for port in each["spec"]["ports"]} == ports
    peers = effective(_variables_of("skep")).peers
    assert peers.partition(":")[0] in {each["metadata"]["name"] for each in found}


def _variables_of(name):
    return {each["name"]: each.get("value", "") for each in pods()[name]["containers"][0]["env"]}


@pytest.mark.parametrize("name", our_services())
def test_a_compose_service_has_settings_that_exist_and_time_to_drain(name):
    service = our_services()[name]

    settings = effective(service["environment"])

    assert service.get("command", ["serve"])[0] in COMMANDS
    if "stop_grace_period" in service:
        assert seconds(service["stop_grace_period"]) > settings.shutdown_grace_s + 5


def test_compose_opens_ports_to_this_machine_only():
    published = [port for each in services().values() for port in each.get("ports", ())]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_compose_holds_no_secret():
    text = (DEPLOY / "compose.yaml").read_text()

    assert re.findall(r"(?:PASSWORD|SECRET): (?!\$\{)", text) == []


def test_the_image_runs_as_an_account_without_rights():
    account = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)[-1]

    assert account == "10001:10001"
    assert (
        f"runAsUser: {account.partition(':')[0]}"
        in (DEPLOY / "kubernetes" / "skep.yaml").read_text()
    )


def test_the_image_is_built_of_files_that_exist_and_that_the_build_may_see():
    allowed = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)", DOCKERFILE, re.MULTILINE)
        for name in line.split()[:-1]
    ]

    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(copied) == set(allowed)


def test_the_image_sets_settings_that_exist():
    effective(dict(re.findall(r"(SKEP_\w+)=(\S+)", DOCKERFILE)))


def test_the_unit_reloads_stops_and_restarts():
    unit = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))

    assert unit["ExecReload"].endswith("-HUP $MAINPID")
    assert unit["Restart"] == "on-failure"
    assert unit["User"] != "root"
    assert int(unit["TimeoutStopSec"]) > load_settings(environment={}).settings.shutdown_grace_s


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    unit = tmp_path / "skep.service"
    unit.write_text(UNIT.read_text().replace("/opt/skep/bin/skep", "/bin/true"))

    checked = subprocess.run(
        [SYSTEMD_ANALYZE, "verify", str(unit)], capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")
