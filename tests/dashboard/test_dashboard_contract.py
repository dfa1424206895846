"""The dashboard follows the API of this checkout: its types, and the roles that actions need."""

import json
import re

import pytest

from skep.app.parts.interface import describe_api
from tests.dashboard.conftest import leave_out
from tests.dashboard.support.browser import DASHBOARD, has_node, install_packages, run_npm

ACTION = re.compile(
    r'^  (\w+): \{ method: "(\w+)", path: "([^"]+)", needs: "([^"]+)" \},$', re.MULTILINE
)


@pytest.fixture(scope="module")
def document():
    return describe_api()


def test_the_sources_fit_the_types_of_the_api(document):
    if not has_node():
        leave_out("there is no Node to check the types with")
    install_packages()
    (DASHBOARD / "openapi.json").write_text(json.dumps(document))
    run_npm("run", "types")

    run_npm("run", "check")


def test_an_action_needs_the_role_that_its_route_asks_for(document):
    listed = ACTION.findall((DASHBOARD / "src" / "api" / "actions.ts").read_text())
    wanted = {
        name: document["paths"][path][method.lower()]["x-access"]
        for name, method, path, _ in listed
    }

    assert len(listed) > 20
    assert {name: needs for name, _, _, needs in listed} == wanted


def test_the_lock_file_names_no_registry():
    assert '"resolved"' not in (DASHBOARD / "package-lock.json").read_text()


def test_the_lock_file_names_the_packages_of_every_platform():
    """A mirror that lacks some must not take them out of the lock: `npm ci` would refuse it."""
    packages = json.loads((DASHBOARD / "package-lock.json").read_text())["packages"]
    wanted = {name for each in packages.values() for name in each.get("optionalDependencies", {})}

    assert {name for name in wanted if f"node_modules/{name}" not in packages} == set()
