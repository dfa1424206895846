"""What users of Queen's Python client do with a bearer token. Played as `stage` says."""

import os

import stage
from queen import Queen
from stage import broker_url, error_of, payloads


def with_token():
    return Queen(url=broker_url(), bearer_token=os.environ["TOKEN"])


async def work(_queen, queue):
    async with with_token() as queen:
        await queen.queue(queue).config({"lease_time": 30}).create()
        pushed = await queen.queue(queue).push([{"data": 1}, {"data": 2}])
        first, second = await queen.queue(queue).batch(10).wait(False).pop()
        acked = await queen.ack(first, True)
        bundle = queen.transaction().ack(second).queue(f"{queue}-next").push([{"data": 3}])
        committed = await bundle.commit()
        forwarded = await queen.queue(f"{queue}-next").wait(False).pop()
        overview = await queen.admin.get_queue(queue)
    return {
        "pushed": [each["status"] for each in pushed],
        "acked": acked["success"],
        "committed": committed["success"],
        "forwarded": payloads(forwarded),
        "producers": [first["producerSub"], forwarded[0]["producerSub"]],
        "name": overview["name"],
    }


async def trespass(queen, queue):
    """Go in without a token, and where the token does not lead."""
    refused = await error_of(queen.queue(queue).push([{"data": 1}]))
    async with with_token() as restricted:
        forbidden = await error_of(restricted.queue(f"{queue}-theirs").push([{"data": 1}]))
    return {"without": refused, "elsewhere": forbidden}


if __name__ == "__main__":
    stage.play(globals())
