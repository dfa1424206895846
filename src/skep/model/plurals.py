"""How many there are of something, in words. Pure."""


def counted(count: int, thing: str) -> str:
    """Return how many there are: `1 message`, `1,024 batches`."""
    ending = "" if count == 1 else "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{ending}"
