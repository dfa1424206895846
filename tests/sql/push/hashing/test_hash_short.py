"""XXH3-128 of short inputs."""

import xxhash

SEED = 0x123456789ABCDEF


async def test_every_size_has_the_hash_of_the_reference(log):
    for size in range(1, 17):
        data = bytes(range(250 - size, 250))
        found = await log.value("select skep.hash_short($1, $2)", data, SEED)

        assert found == xxhash.xxh3_128_digest(data, SEED), size
