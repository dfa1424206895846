import pytest

from tests.compat.shapes import check_shape, each, maybe, time, uuid

ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({"n": 1, "more": 2}, {"n": int}),
        ([{"n": 1}, 2], [{"n": 1}, int]),
        ([1, 2, 3], each(int)),
        (1.5, {int, float}),
        (ID, uuid),
        ("2026-01-02T03:04:05.123Z", time),
        (None, maybe(time)),
    ],
)
def test_what_fits_its_shape_passes(value, shape):
    check_shape(value, shape)


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ({}, {"n": int}),
        ({"n": "1"}, {"n": int}),
        (True, int),
        (1, bool),
        (1, 2),
        (None, {int, float}),
        ([1], []),
        ([], [int]),
        ([], each(int)),
        ([1, "2"], each(int)),
        ("2026-01-02T03:04:05+00:00", time),
        ("noon", maybe(time)),
    ],
)
def test_what_does_not_fit_its_shape_fails(value, shape):
    with pytest.raises(AssertionError):
        check_shape(value, shape)


def test_an_id_that_is_none_fails():
    with pytest.raises(ValueError, match="badly formed"):
        check_shape("not an id", uuid)
