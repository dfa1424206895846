"""Files of queues: what is read, what is refused, and what has to change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.cli.admin.declared_queues import (
    DEFAULTS,
    ExistingQueue,
    MemberChange,
    differences,
    parse_declaration,
)
from skep.model.errors import BadRequest


def declared(text):
    return parse_declaration(text, source="q.yaml")


def existing(namespace="", task="", is_paused=False, **options):
    return ExistingQueue(namespace, task, is_paused, {**DEFAULTS, **options})


def changes(text, **queues):
    return list(differences(declared(text), queues.get))


def test_a_queue_that_is_not_there_is_created_with_what_the_file_names():
    (change,) = changes("queues: {orders: {namespace: shop, options: {leaseTime: 60}}}")

    assert change.action == "create"
    assert change.options() == {"leaseTime": 60}
    assert change.value_of("namespace") == "shop"
    assert change.members[0] == MemberChange("namespace", None, "shop")


def test_a_queue_that_is_as_declared_does_not_change():
    text = "queues: {orders: {task: billing, options: {retryLimit: 5}}}"

    assert changes(text, orders=existing(task="billing", retryLimit=5)) == []


def test_an_option_that_a_file_does_not_name_goes_back_to_its_default():
    (change,) = changes("queues: {orders: {}}", orders=existing(leaseTime=10))

    assert change.action == "change"
    assert change.members == [MemberChange("leaseTime", 10, 300)]


def test_namespace_and_task_change_only_where_the_file_speaks_of_them():
    orders = existing(namespace="shop", task="billing")

    assert changes("queues: {orders: {}}", orders=orders) == []
    (change,) = changes("queues: {orders: {namespace: '', task: billing}}", orders=orders)
    assert change.members == [MemberChange("namespace", "shop", "")]


def test_null_is_the_default():
    assert changes("queues: {orders: {options: {leaseTime: null}}}", orders=existing()) == []


def test_a_pause_is_left_alone_unless_the_file_speaks_of_it():
    paused = existing(is_paused=True)

    assert changes("queues: {orders: {}}", orders=paused) == []
    (change,) = changes("queues: {orders: {paused: false}}", orders=paused)
    assert change.members == [MemberChange("paused", True, False)]
    assert change.options() == {}


def test_an_option_that_an_older_broker_lacks_counts_as_its_default():
    old = ExistingQueue("", "", is_paused=False, options={"leaseTime": 300})

    assert changes("queues: {orders: {}}", orders=old) == []


def test_several_documents_are_one_declaration():
    found = declared("queues: {a: {}}\n---\nqueues: {b: {}}\n")

    assert list(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queues: {a: {options: {leaseTimes: 5}}}", "Did you mean leaseTime?"),
        ("queues: {a: {options: {zzz: 5}}}", "unknown queue option zzz"),
        (
            "queues: {a: {options: {leaseTime: soon}}}",
            'queue a: leaseTime cannot be "soon": it is a whole number',
        ),
        (
            "queues: {a: {options: {ackMode: never}}}",
            'ackMode cannot be "never": it is cumulative or individual',
        ),
        ("queues: {a: {leaseTime: 5}}", "unknown field `leaseTime`"),
        ("queues: {a: {}, a: {}}", "duplicate key a"),
        ("queues: {a: {}}\n---\nqueues: {a: {}}", "queue a is declared twice"),
        ("queues: [", "is not YAML"),
        ("", "declares no queues"),
        ("topics: {}", "unknown field `topics`"),
        ("queues: {}", "declares no queues"),
        (f"queues: {{{'x' * 600}: {{}}}}", "longer than"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(text, said):
    with pytest.raises(BadRequest) as refused:
        declared(text)

    assert said in refused.value.message


@given(
    before=st.fixed_dictionaries(
        {"leaseTime": st.integers(1, 5), "ttl": st.integers(0, 3), "ackMode": st.just("individual")}
    ),
    wanted=st.dictionaries(
        st.sampled_from(["leaseTime", "ttl", "retryLimit"]), st.none() | st.integers(1, 5)
    ),
)
def test_after_the_changes_nothing_differs_any_more(before, wanted):
    queue = existing(**before)
    declaration = parse_declaration(
        f"queues: {{q: {{options: {wanted}}}}}".replace("None", "null"), source="q.yaml"
    )

    sent = {}
    for change in differences(declaration, {"q": queue}.get):
        sent |= change.options()
    after = queue._replace(options={**queue.options, **sent})

    assert list(differences(declaration, {"q": after}.get)) == []
