"""The commands of `skep jobs` that change chains and jobs: named ones, or all that match a filter.

With `--all`, nothing changes before the number of matches is shown and confirmed.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import typer
from typer import Argument, Option

from skep.cli.jobs.lists import ChainState, jobs_app
from skep.cli.shared.connection import with_client
from skep.cli.shared.declare import action
from skep.cli.shared.options import Since, Until, Yes, confirm, declare_options
from skep.cli.shared.output import progress_bar, to_json
from skep.cli.shared.spelling import last_line
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.plurals import counted

if TYPE_CHECKING:
    from skep.client import Client

JobName = Annotated[str, Argument(help="Job name, as workers declare it.")]
ScheduleName = Annotated[str, Argument(help="Schedule name.")]
ChainIds = Annotated[list[UUID] | None, Argument(help="Chain ids.", metavar="ID")]
JobIds = Annotated[list[UUID] | None, Argument(help="Job ids.", metavar="ID")]
All = Annotated[bool, Option("--all", help="All that match the filter, instead of ids.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only count the matches; with --all.")]
OnlyType = Annotated[str | None, Option("--type", help="Only jobs of this name; with --all.")]
OnlyKey = Annotated[
    str | None, Option("--key", help="Only chains started with this key; with --all.")
]
OnlyEnded = Annotated[
    Literal["failed", "cancelled"], Option("--state", help="Only this state; with --all.")
]
OnlyState = Annotated[ChainState | None, Option("--state", help="Only this state; with --all.")]
CHAIN_FILTERS: Final[Mapping[str, Any]] = {
    "type": OnlyType,
    "key": OnlyKey,
    "since": Since,
    "until": Until,
}
WAIT_S: Final = 20
"""How long one request waits for a result; then it is asked again."""

_CHAINS: Final = "/api/v1/chains"
_REASONS: Final = {
    "unavailable": "locked, or changed meanwhile",
    "needed": "a job of another chain needs it",
    "key_taken": "another chain has its key now",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which chains or jobs to change: named ones, or all that match."""

    ids: Sequence[UUID] | None
    is_all: bool
    dry_run: bool
    yes: bool
    type: str | None = None
    state: ChainState | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> None:
        """Require either ids or `--all`."""
        if self.is_all and self.ids:
            raise BadRequest("pass ids, or --all with a filter; not both")
        if not self.is_all and not self.ids:
            raise BadRequest("pass at least one id, or --all with a filter")
        filters = (self.type, self.key, self.since, self.until)
        if not self.is_all and (self.dry_run or any(each is not None for each in filters)):
            raise BadRequest("filters and --dry-run require --all")

    @property
    def named(self) -> list[str]:
        """The ids, if there are any."""
        return [str(each) for each in self.ids or ()]

    def members(self) -> dict[str, Any]:
        """Return the filter by its names on the wire."""
        from skep.client.endpoints import spell_time

        span = {"from": self.since, "to": self.until}
        times = {name: None if at is None else spell_time(at) for name, at in span.items()}
        return {"all": True, "type": self.type, "state": self.state, "key": self.key, **times}


def with_choice(
    ids: Any, filters: Mapping[str, Any], *, state: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ids, filters and `--yes` to a command, which gets a `Choice` as its second argument.

    The filters are types of options by the fields of a choice; `state` is the default of that one.
    """
    options = {"ids": ids, "is_all": All, **filters, "dry_run": DryRun, "yes": Yes}
    defaults = {"is_all": False, "dry_run": False, "yes": False, "state": state}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(client: "Client", **arguments: Any) -> None:
            given: dict[str, Any] = {"state": state}
            given |= {name: arguments.pop(name) for name in options}
            choice = Choice(**given)
            choice.check()
            command(client, choice, **arguments)

        declare_options(run, command, options, defaults=defaults, hidden=("choice",))
        return with_client(run)

    return decorate


def _change(
    client: "Client",
    choice: Choice,
    question: str,
    thing: str,
    path: str,
    change: Callable[[list[str]], str],
    *,
    asks: bool = True,
    how: Mapping[str, Any] | None = None,
) -> None:
    """Change what was named, or count, ask and change all that match.

    The question has `{}` for how many of the thing there are. Named ones are changed without a
    question unless `asks`.
    """
    from rich.progress import Progress

    if not choice.is_all:
        if asks:
            confirm(question.format(counted(len(choice.named), thing)), is_answered=choice.yes)
        typer.echo(change(choice.named))
        return
    members = {**choice.members(), **(how or {})}
    matches = client.request("POST", path, {**members, "dryRun": True})["matches"]
    count, is_exact = matches["count"], matches["isExact"]
    number = counted(count, thing) if is_exact else f"more than {counted(count, thing)}"
    if choice.dry_run or not count:
        typer.echo(f"{number} match{'es' if count == 1 and is_exact else ''}")
        return
    confirm(question.format(number), is_answered=choice.yes)
    with progress_bar(*Progress.get_default_columns()) as progress:
        bar = progress.add_task("working", total=count if is_exact else None)
        sweep = _sweep(client, path, members, lambda seen: progress.update(bar, completed=seen))
    _print(sweep)


def _sweep(
    client: "Client", path: str, members: Mapping[str, Any], show: Callable[[int], None]
) -> dict[str, Any]:
    """Change all that match, request by request, and return what became of them."""
    sums: dict[str, Any] = {"seen": 0, "done": 0, "refused": {}, "examples": []}
    after = None
    while True:
        part = client.request("POST", path, {**members, "after": after})
        for reason, count in part["refused"].items():
            sums["refused"][reason] = sums["refused"].get(reason, 0) + count
        for name in ("seen", "done", "examples"):
            sums[name] += part[name]
        show(sums["seen"])
        after = part["after"]
        if after is None:
            return sums


def _print(sweep: Mapping[str, Any]) -> None:
    typer.echo(f"{sweep['done']:,} done")
    for reason, count in sweep["refused"].items():
        said = _REASONS.get(reason, f"it is {reason}")
        examples = [each["id"] for each in sweep["examples"] if each["reason"] == reason][:3]
        typer.echo(f"{count:,} refused: {said}, such as {', '.join(examples) or '(others)'}")


@jobs_app.command("start")
@with_client
def start(
    client: "Client",
    job: JobName,
    value: Annotated[
        str, Argument(metavar="INPUT", help="Input as JSON; `-` reads it from stdin.")
    ] = "null",
    *,
    key: Annotated[
        str | None, Option(help="Idempotency key: reuse an open chain with this key.")
    ] = None,
    delay: Annotated[float, Option(min=0, help="Start after (seconds).")] = 0.0,
    priority: Annotated[int, Option(help="Priority; smaller runs first.")] = 0,
    wait: Annotated[float | None, Option(min=0, help="Seconds to wait for the result.")] = None,
) -> None:
    """Start a chain; print its id, or with --wait its result."""
    import msgspec

    from skep.jobs.identifiers import new_id

    try:
        text = msgspec.json.decode(sys.stdin.read() if value == "-" else value, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the input is not JSON: {error}") from error
    asked = {"id": str(new_id()), "type": job, "input": text, "key": key, "priority": priority}
    started = _start(client, {**asked, "delaySeconds": delay})
    if wait is None:
        typer.echo(f"{started['id']}{' (already started)' if started['isDuplicate'] else ''}")
    else:
        typer.echo(to_json(_result(client, started["id"], wait)))


def _start(client: "Client", asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Start a chain under an id of ours: a request repeated after a lost answer starts one only."""
    try:
        return client.request("POST", _CHAINS, {"chains": [asked]})["chains"][0]
    except Refused as error:
        try:
            return {**client.request("GET", f"{_CHAINS}/{asked['id']}"), "isDuplicate": False}
        except NotFound:
            raise error from None


def _result(client: "Client", chain: str, wait_s: float) -> Any:
    """Wait for a chain to end, and return its output."""
    ends_at = time.monotonic() + wait_s
    while True:
        left_s = max(min(ends_at - time.monotonic(), WAIT_S), 0)
        path = f"{_CHAINS}/{chain}/result?timeoutSeconds={left_s:.3f}"
        found = client.request("GET", path)
        if found["state"] == "completed":
            return found["output"]
        if found["state"] != "open":
            why = last_line(found["error"] or "no reason is known")
            said = "failed" if found["state"] == "failed" else f"was {found['state']}"
            raise Refused(f"chain {chain} {said}: {why}")
        if time.monotonic() >= ends_at:
            raise Refused(f"chain {chain} did not end within {wait_s:g} s")


@jobs_app.command("cancel")
@with_choice(ChainIds, CHAIN_FILTERS, state="open")
def cancel(
    client: "Client",
    choice: Choice,
    *,
    cascade: Annotated[
        bool, Option("--cascade", help="Also cancel chains that wait for them.")
    ] = False,
    reason: Annotated[str | None, Option(help="Reason, stored with the chain.")] = None,
) -> None:
    """Cancel chains; with --all, the open ones that match."""
    how = {"cascade": cascade, "reason": reason}

    def change(ids: list[str]) -> str:
        states = client.request("POST", f"{_CHAINS}/cancel", {"ids": ids, **how})["states"]
        return "\n".join(f"{chain} {state}" for chain, state in states.items())

    path = f"{_CHAINS}/matching/cancel"
    _change(client, choice, "Cancel {}?", "chain", path, change, how=how)


@jobs_app.command("retry")
@with_choice(ChainIds, {**CHAIN_FILTERS, "state": OnlyEnded}, state="failed")
def retry(client: "Client", choice: Choice) -> None:
    """Resume failed and cancelled chains where they ended."""

    def change(ids: list[str]) -> str:
        for chain in ids:
            client.request("POST", f"{_CHAINS}/{chain}/retry")
        return f"Resumed {counted(len(ids), 'chain')}"

    path = f"{_CHAINS}/matching/retry"
    _change(client, choice, "Resume {}?", "chain", path, change, asks=False)


@jobs_app.command("trigger")
@with_choice(JobIds, {"type": OnlyType, "since": Since, "until": Until})
def trigger(client: "Client", choice: Choice) -> None:
    """Run scheduled jobs now; with --all, those that match."""

    def change(ids: list[str]) -> str:
        for job in ids:
            client.request("POST", f"/api/v1/jobs/{job}/trigger")
        return f"Triggered {counted(len(ids), 'job')}"

    path = "/api/v1/jobs/matching/trigger"
    _change(client, choice, "Run {} now?", "job", path, change, asks=False)


@jobs_app.command("delete")
@with_choice(ChainIds, {**CHAIN_FILTERS, "state": OnlyState})
def delete(
    client: "Client",
    choice: Choice,
    *,
    cascade: Annotated[
        bool,
        Option(
            "--cascade",
            help="Also delete the chains that waited for them, and those that these waited for.",
        ),
    ] = False,
) -> None:
    """Delete chains with their jobs."""
    if choice.is_all and cascade:
        raise BadRequest("--cascade requires ids: --all deletes only what matches")

    def change(ids: list[str]) -> str:
        gone: set[str] = set()
        for chain in ids:
            if chain not in gone:  # a cascade may have reached it
                path = f"{_CHAINS}/{chain}?cascade={to_json(cascade)}"
                gone.update(client.request("DELETE", path)["deleted"])
        return f"Deleted {counted(len(gone), 'chain')}"

    _change(client, choice, "Delete {}?", "chain", f"{_CHAINS}/matching/delete", change)


@jobs_app.command("pause")
@action("Paused job {job}")
def pause(client: "Client", job: JobName) -> None:
    """Start no more jobs of a name; running ones continue."""
    _post(client, "jobs/types", job, "pause")


@jobs_app.command("resume")
@action("Resumed job {job}")
def resume(client: "Client", job: JobName) -> None:
    """Start jobs of a name again."""
    _post(client, "jobs/types", job, "resume")


@jobs_app.command("pause-schedule")
@action("Paused schedule {name}")
def pause_schedule(client: "Client", name: ScheduleName) -> None:
    """Pause a schedule; deployments do not resume it."""
    _post(client, "schedules", name, "pause")


@jobs_app.command("resume-schedule")
@action("Resumed schedule {name}")
def resume_schedule(client: "Client", name: ScheduleName) -> None:
    """Resume a paused schedule with its next tick."""
    _post(client, "schedules", name, "resume")


def _post(client: "Client", *path: str) -> None:
    from skep.client.endpoints import path_of

    client.request("POST", path_of(*path))
