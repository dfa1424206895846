"""What people come to the dashboard for, in a real browser on a real broker."""

import asyncio
import json
import re
import time

import jwt
import pytest
from playwright.async_api import expect

from tests.dashboard.support.scenery import fail_all
from tests.dashboard.test_looks import serious_issues
from tests.sql.support.waiting import eventually

SECRET = "a secret of the tests that is long enough"
SLOW_S = 1


@pytest.fixture
def empty_broker(start_broker, built_site):
    with start_broker("--workers", "1") as broker:
        yield broker


async def test_an_empty_broker_says_what_to_do_next(empty_broker, open_page):
    stage = await open_page(empty_broker)

    await stage.sees("This broker has no queues yet")
    await stage.sees(f"curl -X POST {empty_broker.url}/api/v1/push")
    await stage.click("create a queue", role="link")
    await stage.fill("Name", "first")
    await stage.click("Create")

    await stage.sees("first", role="heading")


async def test_a_pushed_message_is_seen_to_arrive(open_page, broker, client, queue):
    await client.configure(queue)
    stage = await open_page(broker, f"/messages?queue={queue}&live=1")
    await expect(stage.page.get_by_text("live", exact=True)).to_be_visible()

    await client.push({"queue": queue, "payload": {"greeting": "hello there"}})

    await stage.row("Messages as they arrive", "hello there")


async def test_messages_are_found_by_what_is_in_them(open_page, broker, client, queue):
    await client.push(
        *(
            {
                "queue": queue,
                "payload": {"customer": {"id": n}, "note": f"n{n}"},
                "headers": {"tenant": "acme" if n < 2 else "globex"},
                "transactionId": f"t{n}",
            }
            for n in range(4)
        )
    )
    stage = await open_page(broker, f"/messages?queue={queue}")
    table = stage.page.get_by_role("table", name="Messages")
    ids = table.locator("tbody td:first-child")
    await expect(ids).to_have_text(["t3", "t2", "t1", "t0"])
    await stage.row("Messages", "t3", '"note": "n3"')

    await stage.fill("Payload", "$.customer.id >= 1")
    await expect(ids).to_have_text(["t3", "t2", "t1"])
    await stage.fill("Header", "tenant=acme")
    await expect(ids).to_have_text(["t1"])

    await stage.page.get_by_label("Live tail").check()
    await expect(stage.page.get_by_text("live", exact=True)).to_be_visible()
    for tenant in ("globex", "acme"):
        item = {"queue": queue, "payload": {"customer": {"id": 9}, "note": tenant}}
        await client.push({**item, "headers": {"tenant": tenant}})
    live = stage.page.get_by_role("table", name="Messages as they arrive")
    await expect(live.locator("tbody tr")).to_have_count(1)
    await stage.row("Messages as they arrive", '"note":"acme"')


async def test_a_message_can_be_pushed_by_hand(open_page, broker, client, queue):
    await client.configure(queue)
    stage = await open_page(broker, f"/queues/{queue}")

    await stage.click("Push a message")
    await stage.fill("Payload (JSON)", "{")
    await expect(stage.page.get_by_role("button", name="Push", exact=True)).to_be_disabled()
    await stage.fill("Payload (JSON)", '{"by": "hand"}')
    await stage.click("Push")

    await stage.sees("Pushed.")
    (message,) = await client.pop(queue)
    assert message["data"] == {"by": "hand"}


async def test_a_message_is_found_by_its_id_and_replayed(open_page, broker, client, queue):
    await client.push({"queue": queue, "payload": {"n": 1}, "transactionId": f"find-{queue}"})
    await fail_all(client, queue, group="g", error="cannot reach the bank")
    stage = await open_page(broker, "/messages")

    await stage.fill("Transaction id", f"find-{queue}")
    await (await stage.row("Messages", f"find-{queue}")).get_by_role("link").first.click()
    await stage.sees("cannot reach the bank")
    await stage.sees("Dead-lettered for group g after 1 failure")
    await stage.click("Retry")

    await expect(stage.page.locator(".toast")).to_be_visible()
    (again,) = await client.pop(queue, consumerGroup="g")
    assert again["data"] == {"n": 1}
    await stage.click("pushed again", role="link")
    await stage.sees("Pushed again from a dead letter of group g")
    await stage.sees("Leased by group g")


async def test_dead_letters_are_grouped_and_redriven(open_page, broker, client, queue):
    await client.push_payloads(queue, *range(5))
    await fail_all(client, queue, group="g", error="timeout after 30 ms")
    stage = await open_page(broker, f"/dead-letters?queue={queue}")

    await stage.row("Dead letters by error", "timeout after # ms", "5")
    await stage.click("Redrive all that match", exact=False)
    dialog = stage.page.get_by_role("dialog")
    await expect(dialog).to_contain_text(f"5 of {queue}, failed by group g")
    await expect(dialog.get_by_label("Delivered to")).to_have_value("failed")
    assert await serious_issues(stage) == []
    await stage.click("Push 5 again")

    await stage.sees("5 of 5 pushed again")
    await stage.sees("No dead letters")
    assert len(await client.pop(queue, consumerGroup="g", batch=10)) == 5


TRACEBACK = """Traceback (most recent call last):
  File "/app/lib/python3.12/site-packages/skep/client/consumer.py", line 214, in _handle
    await self._handler(message)
  File "/app/ledger.py", line 88, in book
    entry = await append(account)
ValueError: account 12 is closed
"""


async def test_a_dead_letter_shows_payload_and_error_side_by_side(open_page, broker, client, queue):
    for sku in ("A-6", "A-7"):
        await client.push({"queue": queue, "payload": {"sku": sku}, "transactionId": sku})
        await fail_all(client, queue, group="g", error=TRACEBACK)
    stage = await open_page(broker, f"/dead-letters?queue={queue}")
    row = await stage.row("Dead letters", '"sku":"A-7"')
    await expect(row).to_contain_text("ValueError: account 12 is closed")
    await expect(row).not_to_contain_text("Traceback")

    await row.get_by_role("button", name="A-7").click()

    dialog = stage.page.get_by_role("dialog")
    error = dialog.get_by_role("region", name="Error")
    await expect(error.locator("summary")).to_have_text("ValueError: account 12 is closed")
    await expect(error.locator(".foreign")).to_have_count(2)
    await expect(error.locator("pre span:not(.foreign)")).to_have_count(4)
    payload = dialog.get_by_role("region", name="Payload")
    await expect(payload).to_contain_text("A-7")
    assert await serious_issues(stage) == []
    left, right = await error.bounding_box(), await payload.bounding_box()
    assert (left["y"], left["x"] < right["x"]) == (right["y"], True)

    # It stays while the list changes: a redrive makes the page read again.
    await client.push_payloads(queue, "newer")
    await fail_all(client, queue, group="g", error="no")
    found = json.loads((await client.call("GET", f"/api/v1/dlq?queue={queue}")).body)
    await client.post("/api/v1/dlq/redrive", {"ids": [found["messages"][-1]["dlqId"]]})
    await stage.sees('"newer"')
    await expect(payload).to_contain_text("A-7")


async def test_a_redrive_that_ends_between_two_looks_leaves_no_letter_on_the_page(
    open_page, broker, client, queue
):
    async def answer_when_it_has_ended(route):
        await eventually(lambda: has_no_letters(broker, queue))
        # Where answers are slow a page hardly reads by itself any more.
        await asyncio.sleep(SLOW_S)
        await route.continue_()

    await client.push_payloads(queue, *range(5))
    await fail_all(client, queue, group="g", error="no")
    stage = await open_page(broker, f"/dead-letters?queue={queue}")
    await stage.row("Dead letters by error", "no", "5")
    await stage.page.route(re.compile(r"/dlq/redrive\?"), answer_when_it_has_ended)

    await stage.click("Redrive all that match", exact=False)
    await stage.click("Push 5 again")

    await stage.sees("5 of 5 pushed again")
    await stage.sees("No dead letters")


async def has_no_letters(broker, queue):
    async with broker.connect() as connection:
        answer = await connection.call("GET", f"/api/v1/dlq?queue={queue}")
    return json.loads(answer.body)["total"] == 0


async def test_only_chosen_letters_are_redriven(open_page, broker, client, queue):
    await client.push(
        *({"queue": queue, "payload": n, "transactionId": f"{queue}-{n}"} for n in range(3))
    )
    await fail_all(client, queue, group="g", error="no")
    stage = await open_page(broker, f"/dead-letters?queue={queue}")

    await stage.page.get_by_label(f"Choose {queue}-1").check()
    await stage.click("Redrive the chosen (1)")
    await stage.click("Push 1 again")

    # Of other tests there may be redrives of one, too.
    await stage.sees("2 dead letters")
    (again,) = await client.pop(queue, consumerGroup="g", batch=10)
    assert again["data"] == 1


async def test_a_seek_shows_what_it_skips_before_it_moves(open_page, broker, client, queue):
    await client.push_payloads(queue, *range(20))
    await client.pop(queue, consumerGroup="g", batch=5, autoAck=True)
    stage = await open_page(broker, f"/groups/g/{queue}")

    await stage.click("Seek")
    await expect(stage.page.get_by_role("dialog").get_by_role("status")).to_contain_text(
        re.compile(r"skips 15 unread messages and replays 0")
    )
    await stage.choose("To", "start")
    await expect(stage.page.get_by_role("dialog").get_by_role("status")).to_contain_text(
        re.compile(r"skips 0 unread messages and replays 5")
    )
    await stage.click("Move")

    await stage.sees("Moved in 1 partition.")
    assert len(await client.pop(queue, consumerGroup="g", batch=50)) == 20


async def test_an_edited_configuration_shows_the_difference_first(open_page, broker, client, queue):
    await client.configure(queue, leaseTime=60)
    stage = await open_page(broker, f"/queues/{queue}?tab=configuration")

    await stage.page.get_by_label("Lease", exact=True).fill("90")
    await stage.sees("leaseTime: 60 → 90")
    await stage.click("Save changes")

    await stage.sees("Saved the configuration.")
    assert (await client.configure(queue))["options"]["leaseTime"] == 90


async def test_clearing_needs_the_name_to_be_typed(open_page, broker, client, queue):
    await client.push_payloads(queue, 1, 2)
    stage = await open_page(broker, f"/queues/{queue}")

    await stage.click("Clear")
    drop = stage.page.get_by_role("button", name="Delete all messages")
    await expect(drop).to_be_disabled()
    await stage.page.get_by_role("dialog").get_by_role("textbox").fill(queue)
    await drop.click()

    await stage.sees("Deleted 2 messages.")
    assert await client.pop(queue) == []


async def test_a_paused_queue_says_so(open_page, broker, client, queue):
    await client.configure(queue)
    stage = await open_page(broker, f"/queues/{queue}")

    await stage.click("Pause")

    await stage.sees("Paused: nothing is delivered until it is resumed.")
    await stage.sees("Resume", role="button")


async def test_a_view_comes_back_by_its_address(open_page, broker, client, queue):
    await client.push_payloads(queue, 1)
    stage = await open_page(broker, "/queues")

    await stage.fill("Search", queue)
    await stage.page.wait_for_url(f"**/queues?search={queue}")
    await stage.page.reload()
    await (await stage.row("Queues", queue)).get_by_role("link").first.click()
    await stage.sees(queue, role="heading")
    await stage.page.go_back()

    await stage.row("Queues", queue)


# Fills the field in the very turn in which it is put on the page: nobody types sooner.
QUICK_FINGERS = """
new MutationObserver((_, observer) => {
  const field = document.querySelector("input[type=search]");
  if (!field) return;
  observer.disconnect();
  field.value = "TEXT";
  field.dispatchEvent(new Event("input", { bubbles: true }));
}).observe(document, { childList: true, subtree: true });
"""


async def test_what_is_typed_the_moment_a_field_appears_is_kept(open_page, broker, client, queue):
    await client.push_payloads(queue, 1)
    stage = await open_page(broker, "/")
    await stage.page.add_init_script(QUICK_FINGERS.replace("TEXT", queue))

    await stage.go("/queues")

    await stage.page.wait_for_url(f"**/queues?search={queue}")
    await stage.row("Queues", queue)


@pytest.fixture(scope="module")
def guarded(start_broker, built_site):
    with start_broker("--workers", "1", jwt_enabled="true", jwt_secret=SECRET) as broker:
        yield broker


def token_of(role):
    claims = {"sub": f"{role}@example.com", "role": role, "exp": int(time.time()) + 600}
    return jwt.encode(claims, SECRET, "HS256")


async def call_as(role, broker, method, path, body=b""):
    header = f"authorization: Bearer {token_of(role)}\r\n"
    async with broker.connect() as connection:
        return await connection.call(method, path, body, header)


@pytest.mark.parametrize(
    ("role", "offered", "withheld"),
    [
        ("read-only", [], ["Push a message", "Pause", "Clear", "Delete"]),
        ("read-write", ["Push a message", "Pause"], ["Clear", "Delete"]),
        ("admin", ["Push a message", "Pause", "Clear", "Delete"], []),
    ],
)
async def test_a_role_is_offered_what_it_may_do(role, offered, withheld, open_page, guarded, queue):
    await call_as(
        "admin", guarded, "POST", "/api/v1/configure", b'{"queue": "%b"}' % queue.encode()
    )
    stage = await open_page(guarded, f"/queues/{queue}")
    stage.allowed = ("401",)
    await stage.sees("Sign in to Skep")

    await stage.fill("Access token (JWT)", token_of(role))
    await stage.click("Sign in")

    await stage.sees(queue, role="heading")
    await stage.sees("Live tail", role="link")
    await stage.sees(f"{role}@example.com")
    for name in offered:
        await stage.sees(name, role="button")
    for name in withheld:
        await stage.lacks(name, role="button")


@pytest.mark.parametrize(("role", "offers"), [("read-only", 0), ("read-write", 1)])
async def test_a_replay_is_offered_to_those_who_may_write(role, offers, open_page, guarded):
    stage = await open_page(guarded, "/pipelines?tab=archive")
    stage.allowed = ("401",)
    await stage.fill("Access token (JWT)", token_of(role))
    await stage.click("Sign in")

    await stage.sees("Copy the command", role="button")
    button = stage.page.get_by_role("button", name="Start the replay")
    await expect(button).to_have_count(offers)


READABLE = {
    "/": "Messages per second",
    "/queues": "Queues",
    "/messages": "Messages",
    "/groups": "Stuck partitions",
    "/dead-letters": "Dead letters",
    "/chains": "No chain matches",
    "/chains?tab=types": "No jobs yet",
    "/pipelines": "Nothing reads with Spark yet",
    "/pipelines?tab=archive": "No queue has an archive",
    "/traces": "No traces yet",
    "/streams": "No stream queries",
    "/operations": "Scheduled messages",
    "/system": "Bloat and vacuum",
    "/settings": "For administrators",
}


async def test_a_reader_sees_pages_without_a_refusal(open_page, guarded, queue):
    await call_as(
        "admin", guarded, "POST", "/api/v1/configure", b'{"queue": "%b"}' % queue.encode()
    )
    stage = await open_page(guarded, "/")
    stage.allowed = ("401",)
    await stage.fill("Access token (JWT)", token_of("read-only"))
    await stage.click("Sign in")
    await stage.sees("Overview", role="heading")
    refused = {}
    for path, text in READABLE.items():
        await stage.go(path)
        await stage.sees(text)
        if alerts := await stage.page.get_by_role("alert").all_inner_texts():
            refused[path] = alerts

    assert refused == {}


async def test_a_token_that_is_not_accepted_is_refused_with_a_reason(open_page, guarded):
    stage = await open_page(guarded, "/")
    stage.allowed = ("401",)

    await stage.fill("Access token (JWT)", "not a token")
    await stage.click("Sign in")

    await expect(stage.page.get_by_role("alert")).to_be_visible()
    await stage.click("Sign in")
    await stage.sees("Sign in to Skep")
