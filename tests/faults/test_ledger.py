"""The checker itself: it accepts what a good broker does, and complains about everything else."""

import pytest

from tests.faults.support.ledger import (
    KINDS,
    Ack,
    Attempt,
    Delivery,
    Ledger,
    RolledBack,
    Stored,
    complaints,
    summary,
)

LEASE_S = 2.0


class History:
    """Writes a ledger with little ink: messages are numbers, leases are letters."""

    def __init__(self):
        self.ledger = Ledger()

    def push(self, *numbers, partition="p", producer="q"):
        for number in numbers:
            self.attempt(number, partition=partition, producer=producer)
            self.ledger.stored.append(Stored(partition, f"t{number}", f"m{number}"))
        return self

    def attempt(self, number, *, partition="p", producer="q", sequence=None):
        name = f"t{number}"
        self.ledger.attempts.append(Attempt(partition, name, producer, sequence or number))
        return self

    def deliver(self, lease, *numbers, at, took_s=0.1, partition="p", group="g"):
        for number in numbers:
            self.ledger.deliveries.append(
                Delivery(
                    group, partition, f"m{number}", f"t{number}", lease, LEASE_S, at, at + took_s
                )
            )
        return self

    def ack(self, lease, number, *, at, status="completed", answer=True, partition="p"):
        known = {} if answer is None else {"answered_at": at + 0.1, "is_success": answer}
        ack = Ack("g", partition, f"t{number}", lease, status, at, **known)
        self.ledger.acks.append(ack)
        return self

    @property
    def complaints(self):
        return complaints(self.ledger, ["g"])


def good_history():
    return (
        History()
        .push(1, 2, 3)
        .deliver("A", 1, 2, at=0)
        .ack("A", 2, at=0.5)
        .deliver("B", 3, at=1)
        .ack("B", 3, at=1.5)
    )


def test_a_history_without_offence_is_accepted():
    assert good_history().complaints == []


@pytest.mark.parametrize(
    "history",
    [
        # The consumer was slow: its lease ended, and the message came again.
        History().push(1).deliver("A", 1, at=0).deliver("B", 1, at=2).ack("B", 1, at=2.5),
        # The consumer failed, said so, and somebody else tried.
        History()
        .push(1)
        .deliver("A", 1, at=0)
        .ack("A", 1, at=0.2, status="retry")
        .deliver("B", 1, at=0.3),
        # The answer to an ack was lost, and so was the ack.
        History()
        .push(1)
        .deliver("A", 1, at=0)
        .ack("A", 1, at=0.2, answer=None)
        .deliver("B", 1, at=2.1),
        # A push without an answer was stored nevertheless.
        History().push(1).attempt(2).deliver("A", 1, 2, at=0),
        # A push without an answer was not stored.
        History().push(1).attempt(2).deliver("A", 1, at=0),
        # The answer to a poll took longer than its lease; meanwhile another consumer was done.
        History()
        .push(1)
        .deliver("B", 1, at=2.5)
        .ack("B", 1, at=2.7)
        .deliver("A", 1, at=0, took_s=3.5),
        # Two producers meet in one partition, in any order but each in its own.
        History()
        .push(1, 2, producer="q")
        .attempt(11, producer="r", sequence=1)
        .attempt(12, producer="r", sequence=2)
        .deliver("A", 11, 1, 12, 2, at=0),
        # Two partitions are leased at the same time.
        History()
        .push(1)
        .push(1, partition="o")
        .deliver("A", 1, at=0)
        .deliver("A", 1, at=0, partition="o"),
    ],
    ids=[
        "expired",
        "failed",
        "ack lost",
        "push stored",
        "push not stored",
        "straggler",
        "two producers",
        "two partitions",
    ],
)
def test_what_a_good_broker_may_do_is_accepted(history):
    assert history.complaints == []


def test_an_answered_push_that_is_never_delivered_is_lost():
    history = good_history().push(4)

    (complaint,) = history.complaints
    assert complaint.startswith("lost: ")


def test_a_push_that_was_kept_on_disk_and_never_delivered_is_lost():
    history = good_history()
    history.ledger.stored.append(Stored("p", "t4", None))

    (complaint,) = history.complaints
    assert complaint.startswith("lost: ")


def test_a_push_that_was_kept_on_disk_is_found_by_its_name():
    history = good_history()
    history.ledger.stored[0] = Stored("p", "t1", None)

    assert history.complaints == []


def test_a_message_whose_push_was_rolled_back_is_an_aborted_read():
    history = good_history()
    history.ledger.rolled_back.append(RolledBack("p", "t3"))

    (complaint,) = history.complaints
    assert complaint.startswith("aborted read: ")


def test_a_group_that_got_nothing_lost_everything():
    offences = complaints(good_history().ledger, ["g", "other"])

    assert [offence.split(":")[0] for offence in offences] == ["lost"] * 3


def test_a_message_nobody_pushed_is_a_phantom():
    history = good_history().deliver("C", 99, at=2)

    (complaint,) = history.complaints
    assert complaint.startswith("phantom: nobody pushed")


def test_a_message_in_another_partition_is_a_phantom():
    history = good_history().deliver("C", 3, at=2, partition="elsewhere")

    (complaint,) = history.complaints
    assert complaint.startswith("phantom: nobody pushed")


def test_a_message_under_another_id_than_the_push_was_told_is_a_phantom():
    history = History().push(1)
    history.ledger.stored[0] = Stored("p", "t1", "another")
    history.deliver("A", 1, at=0)

    kinds = {complaint.split(":")[0] for complaint in history.complaints}
    assert kinds == {"phantom", "stored twice", "lost"}


def test_one_message_under_two_ids_was_stored_twice():
    history = good_history()
    history.ledger.stored.append(Stored("p", "t3", "m4"))

    assert "stored twice" in {complaint.split(":")[0] for complaint in history.complaints}


def test_messages_of_a_producer_out_of_turn_are_in_disorder():
    history = History().push(1, 2, 3).deliver("A", 1, 3, 2, at=0)

    assert {complaint.split(":")[0] for complaint in history.complaints} == {"disorder"}


def test_a_message_left_out_is_disorder_even_if_it_comes_later():
    history = History().push(1, 2, 3).deliver("A", 1, 3, at=0).ack("A", 3, at=0.2)
    history.deliver("B", 2, at=0.5)

    assert {complaint.split(":")[0] for complaint in history.complaints} == {"disorder"}


def test_a_delivery_after_a_successful_ack_is_an_offence():
    history = good_history().deliver("C", 2, at=5)

    (complaint,) = history.complaints
    assert complaint.startswith("delivered after ")


def test_a_poll_that_was_waiting_during_the_ack_must_not_get_the_message_either():
    history = good_history().deliver("C", 3, at=0.9, took_s=1.5)

    assert "delivered after" in {complaint[:15] for complaint in history.complaints}


def test_an_ack_that_was_refused_promises_nothing():
    history = History().push(1).deliver("A", 1, at=0).deliver("B", 1, at=2.1)
    history.ack("A", 1, at=2.3, answer=False).deliver("C", 1, at=5)

    assert history.complaints == []


def test_two_leases_on_one_partition_at_once_are_an_offence():
    history = History().push(1, 2).deliver("A", 1, at=0).deliver("B", 2, at=0.5)

    (complaint,) = history.complaints
    assert complaint.startswith("two leases at once")


def test_a_lease_of_which_only_a_part_was_completed_is_still_held():
    history = History().push(1, 2, 3).deliver("A", 1, 2, at=0).ack("A", 1, at=0.2)
    history.deliver("B", 3, at=0.5)

    assert "two leases at once" in {complaint[:18] for complaint in history.complaints}


def test_a_lease_whose_completion_was_refused_is_still_held():
    history = History().push(1, 2).deliver("A", 1, at=0).ack("A", 1, at=0.2, answer=False)
    history.deliver("B", 2, at=0.5)

    assert "two leases at once" in {complaint[:18] for complaint in history.complaints}


def test_a_message_that_comes_again_while_its_lease_lasts_is_unexplained():
    history = History().push(1, 2).deliver("A", 1, at=0).deliver("B", 1, at=1)

    assert "unexplained" in {complaint.split(":")[0] for complaint in history.complaints}


def test_a_failure_explains_only_what_follows_it():
    history = History().push(1).deliver("A", 1, at=0).deliver("B", 1, at=0.5)
    history.ack("A", 1, at=1.5, status="retry")

    assert "unexplained" in {complaint.split(":")[0] for complaint in history.complaints}


def test_a_summary_counts_each_kind_of_offence():
    history = good_history().push(4).deliver("C", 2, at=5)

    counted = summary(history.ledger, ["g"])

    assert counted == dict.fromkeys(KINDS, 0) | {"lost": 1, "delivered after": 1}
