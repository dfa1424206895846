"""What positions and spans mean, segment by segment."""


def sees(snapshot, xid):
    """Tell whether a transaction had ended."""
    return xid < snapshot.xmax and xid not in snapshot.in_progress


def includes(span, address):
    """Tell whether a segment belongs to a span."""
    return (
        sees(span.upto, address.xid)
        and not sees(span.seen, address.xid)
        and (span.after is None or address > span.after)
        and (span.through is None or address <= span.through)
    )


def contains(position, address):
    """Tell whether a segment has been read."""
    part = position.part
    return sees(position.seen, address.xid) or (
        part is not None and sees(part.snapshot, address.xid) and address <= part.through
    )
