from uuid import uuid4

import pytest

from skep.broker.transaction.settlement import Operations, Settled, Settlement

NOTHING = Settled(refusal=None, refused_position=0, acks=[], pushes=[], row=None)


def settlement(answer):
    return Settlement(uuid4(), "select", Operations([], [], []), answer)


def test_an_answer_that_raises_leaves_the_settlement_to_be_failed_by_the_engine():
    def answer(_):
        raise KeyError

    unanswered = settlement(answer)

    with pytest.raises(KeyError):
        unanswered.finish(NOTHING)
    assert not unanswered.is_settled


def test_a_settlement_is_settled_by_its_answer():
    answers = []
    answered = settlement(answers.append)

    answered.finish(NOTHING)

    assert answers == [NOTHING]
    assert answered.is_settled
