"""The example of a job chain runs as it says."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "job_chain.py"


async def test_the_example_charges_and_ships_every_order_once(client, sql, capsys):
    example = runpy.run_path(str(EXAMPLE))

    await example["main"](client.dsn)

    assert capsys.readouterr().out.splitlines() == [
        f"order {number}: HONEY and WAX" for number in range(3)
    ]
    for table in ("ordered", "charged", "shipped"):
        rows = await sql.fetch(f"select number from {table} order by 1")
        assert [row[0] for row in rows] == [0, 1, 2]
