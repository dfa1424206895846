import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.broker.stats.samples import decode_sample, encode_sample, merge_samples, observe

VALUES = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=5)
SAMPLES = st.builds(
    observe,
    st.dictionaries(st.sampled_from("ab"), st.integers(min_value=0, max_value=1000)),
    st.dictionaries(st.sampled_from("xy"), VALUES),
)


@given(st.lists(VALUES, min_size=1))
def test_a_gauge_knows_what_was_seen_however_it_was_gathered(parts):
    seen = [value for values in parts for value in values]

    gauge = merge_samples(observe({}, {"x": values}) for values in parts).gauges["x"]

    assert [gauge.least, gauge.greatest, gauge.last] == [min(seen), max(seen), seen[-1]]
    assert gauge.average == pytest.approx(sum(seen) / len(seen), abs=1e-6)


@given(SAMPLES, SAMPLES, SAMPLES)
def test_samples_may_be_merged_in_any_grouping(first, second, third):
    left = first.merge(second).merge(third)
    right = first.merge(second.merge(third))

    assert left.counters == right.counters
    for name, gauge in left.gauges.items():
        assert gauge.last == right.gauges[name].last
        assert gauge.sum == pytest.approx(right.gauges[name].sum, abs=1e-6)


@given(SAMPLES)
def test_a_sample_survives_its_spelling(sample):
    assert decode_sample(encode_sample(sample)) == sample


def test_what_nobody_looked_at_has_no_average():
    sample = observe({"a": 0}, {"x": []})

    assert sample.average("x") is None
    assert sample.count("a") == 0
    assert sample.counters == {}
