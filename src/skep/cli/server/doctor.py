"""`skep doctor`: check settings, database and broker, and advise what to do."""

import sys

from skep.cli.shared.connection import with_connection
from skep.cli.shared.options import ConfigFile, DatabaseSchema, DatabaseUrl, DataDir
from skep.cli.shared.output import Output, print_rows
from skep.model.errors import SkepError
from skep.settings.connection import ConnectionChoice


class ChecksFailed(SkepError):
    """Checks found something broken."""

    code = "something_is_broken"


@with_connection
def doctor(
    choice: ConnectionChoice,
    *,
    database_url: DatabaseUrl = None,
    database_schema: DatabaseSchema = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    output: Output = "table",
) -> None:
    """Check settings, database and broker. Exits with 2 if something is broken."""
    from skep.cli.server.doctor_checks import examine, findings_table

    flags = {"database_url": database_url, "database_schema": database_schema, "data_dir": data_dir}
    findings = list(examine(config_file, flags, choice))
    if output == "table" and sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(findings_table(findings))
    else:
        print_rows(findings, ("state", "topic", "found", "advice"), output)
    count = sum(finding.state == "broken" for finding in findings)
    if count:
        raise ChecksFailed(f"{count} of {len(findings)} checks found something broken")
