"""`skep doctor`: what is well with an installation, what is not, and what to do about it.

It looks from three sides: this machine and its settings, the database, the broker that commands
speak to. Nothing is changed and nothing is started.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from skep.cli.server.findings import Finding, broken, finding_rows, findings_table, ok
from skep.cli.shared.connection import ContextName, Token, Url
from skep.cli.shared.extras import ExtraMissing, require_server_extra
from skep.cli.shared.options import ConfigFile, DatabaseSchema, DatabaseUrl, DataDir
from skep.cli.shared.output import Output, print_rows
from skep.model.errors import SkepError
from skep.settings import EffectiveSettings, Settings, load_settings
from skep.settings.connection import ConnectionChoice

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

TIMEOUT_S: Final = 5.0


class SomethingIsBroken(SkepError):
    """Something is broken."""

    code = "something_is_broken"


def doctor(
    *,
    database_url: DatabaseUrl = None,
    database_schema: DatabaseSchema = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    url: Url = None,
    token: Token = None,
    context: ContextName = None,
    output: Output = "table",
) -> None:
    """Look at settings, database and broker, and say what to do. Ends with 2 if one is broken."""
    flags = {"database_url": database_url, "database_schema": database_schema, "data_dir": data_dir}
    choice = ConnectionChoice(url=url, token=token, context=context)
    findings = list(examine(config_file, flags, choice))
    if output == "table":
        from rich.console import Console

        Console(highlight=False).print(findings_table(findings))
    else:
        print_rows(finding_rows(findings), (), output)
    count = sum(finding.state == "broken" for finding in findings)
    if count:
        raise SomethingIsBroken(f"{count} of {len(findings)} checks found something broken")


def examine(
    config_file: Path | None, flags: Mapping[str, object], choice: ConnectionChoice
) -> Iterator[Finding]:
    """Make all checks, one after the other."""
    from skep.cli.server.doctor_broker import examine_broker
    from skep.cli.server.doctor_machine import judge_settings

    try:
        effective: EffectiveSettings | None = load_settings(config_file=config_file, flags=flags)
    except SkepError as error:
        effective = None
        advice = "mend it; `skep config` shows every setting and where it comes from"
        yield broken("settings", error.message, advice)
    if effective is not None:
        yield from judge_settings(effective)
        yield from _examine_home(effective.settings)
    yield from examine_broker(choice)


def _examine_home(settings: Settings) -> Iterator[Finding]:
    """Look at what only matters where a broker runs."""
    from skep.cli.server.doctor_machine import judge_machine

    try:
        require_server_extra()
    except ExtraMissing:
        yield ok("server", "not installed here; machine and database are not looked at")
        return
    yield from judge_machine(settings)
    yield from _examine_database(settings)


def _examine_database(settings: Settings) -> Iterator[Finding]:
    from skep.app.processes.database import should_migrate
    from skep.cli.server.doctor_database import judge_schema, judge_server
    from skep.cli.server.doctor_machine import find_database
    from skep.db.access.sessions import require_own_sessions
    from skep.db.schema.migrate import schema_state
    from skep.db.schema.server import inspect_server

    dsn = find_database(settings)
    if isinstance(dsn, Finding):
        yield dsn
        return
    try:
        facts = _run(inspect_server(dsn, timeout_s=TIMEOUT_S))
    except SkepError as error:
        advice = "start PostgreSQL, or correct `database_url`; `skep config` shows it"
        yield broken("database", error.message, advice)
        return
    wanted = settings.worker_count * (settings.connections + settings.query_connections)
    yield from judge_server(facts, wanted=wanted, now=datetime.now(UTC))
    try:
        _run(require_own_sessions(dsn, timeout_s=TIMEOUT_S))
        yield ok("pooler", "none stands before PostgreSQL")
    except SkepError as error:
        yield broken("pooler", error.message, "name PostgreSQL itself in `database_url`")
        return
    try:
        state = _run(schema_state(dsn))
        yield judge_schema(state, migrates=should_migrate(settings))
    except SkepError as error:
        yield broken("migrations", error.message, "run `skep migrate`")


def _run(work: "Coroutine[object, object, T]") -> T:
    async def in_time() -> T:
        async with asyncio.timeout(TIMEOUT_S * 2):
            return await work

    return asyncio.run(in_time())
