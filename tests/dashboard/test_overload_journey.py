"""What an operator sees of operations that are not carried out, and of those that are again."""

import pytest
from playwright.async_api import expect

from tests.api.support.overload import TIGHT, accepted, ended, overload, read, standstill
from tests.dashboard.test_looks import serious_issues
from tests.sql.support.waiting import eventually


@pytest.fixture
def tight_broker(start_broker, built_site):
    """A broker with little memory for requests, where an operation is soon overdue."""
    with start_broker("--workers", "1", **TIGHT, operation_timeout_s=2) as broker:
        yield broker


async def is_stuck(client):
    return (await read(client, "/stats"))["systemHealth"] == "stuck"


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_a_stuck_operation_appears_and_goes(colours, tight_broker, open_page, queue):
    async with tight_broker.connect() as client:
        await client.push_payloads(queue, "first")
        stage = await open_page(tight_broker, "/operations", colours=colours)
        card = stage.page.get_by_role("region", name="Operation queue")
        health = card.locator(".card-head .badge")
        await expect(health).to_have_text("healthy")

        async with standstill(tight_broker):
            async with overload(tight_broker, queue):
                operation = await accepted(client, queue, "second", partition="customer-7")

            # By itself a page reads rarely after an answer that was slow, as on a busy machine.
            await eventually(lambda: is_stuck(client))
            await stage.go("/operations")
            row = await stage.row("Stuck operations", queue, "customer-7", "waiting")
            await expect(row.get_by_role("time")).to_contain_text(" ago")
            await expect(row).to_contain_text("find what blocks it, or cancel it")
            await expect(row.get_by_role("button", name="Cancel")).to_be_visible()
            await expect(health).to_have_text("stuck")
            assert await serious_issues(stage) == []
            await stage.go("/system")
            tile = stage.page.get_by_role("link", name="Operation queue")
            await expect(tile).to_contain_text("stuck")

        await ended(client, operation["operationId"])
        await stage.go("/operations")
        await expect(health).to_have_text("healthy")
        await stage.lacks("Stuck operations", role="table")
