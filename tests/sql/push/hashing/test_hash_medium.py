"""XXH3-128 of inputs between 17 and 240 bytes."""

import xxhash

SEED = 0x123456789ABCDEF


async def test_every_size_has_the_hash_of_the_reference(log):
    for size in range(17, 241):
        data = bytes(range(size))
        found = await log.value("select skep.hash_medium($1, $2)", data, SEED)

        assert found == xxhash.xxh3_128_digest(data, SEED), size
