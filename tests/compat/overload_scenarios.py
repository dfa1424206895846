"""A producer of Queen's Python client that meets a broker without room.

Played as `stage` says.
"""

import stage
from stage import error_of


async def push_once(queen, queue):
    return await error_of(queen.queue(queue).push({"data": "through"}))


if __name__ == "__main__":
    stage.play(globals())
