"""The last step of XXH3."""

BITS = 2**64 - 1


def avalanche(number):
    number = ((number ^ (number >> 37)) * 0x165667919E3779F9) & BITS
    return number ^ (number >> 32)


async def test_it_mixes_as_the_algorithm_says(log):
    for number in (0, 1, 2**37, 2**63, BITS, 0x0123456789ABCDEF, 0xFEDCBA9876543210):
        signed = number - 2**64 if number >= 2**63 else number
        mixed = await log.value("select skep.avalanche64($1)", signed)

        assert mixed % 2**64 == avalanche(number), number
