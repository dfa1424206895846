"""Ask routes that answer from what workers report now and then."""

import json

from tests.sql.support.waiting import eventually


async def ask(client, path, status=200, method="GET"):
    answer = await client.call(method, path)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def ask_until(client, path, is_there):
    """Ask again and again until the answer says what is waited for; return it."""

    async def look():
        found = await ask(client, path)
        return found if is_there(found) else None

    return await eventually(look)
