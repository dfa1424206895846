"""Which patterns are accepted: those that Java matches in time proportional to the text."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skep.spark.transfer.patterns import WAYS_MAX, UnboundedPattern, check_like, check_regex


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "timeout|refused",
        "^(order|refund)$",
        r"(?i)^[A-Z]{2}-\d{1,5}$",
        r"\b(\d{1,3}\.){3}\d{1,3}\b",
        r"^https?://[^/]+/orders",
        "error.*",
        "^.*total",
        r'^\{"id":\d+}',
        "^a*b|^c*d",
        "[^^&a-]{2,}",
        "[0-9a-f]{8}-[0-9a-f]{4}",
    ],
)
def test_what_is_tried_in_a_few_ways_is_accepted(pattern):
    check_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a|aa)+$", "single character or class"),
        ("(a*)*", "single character or class"),
        ("([a-z]+)+@", "single character or class"),
        ("^(a*){9}$", "only one"),
        ("^a*a*a*$", "only one"),
        (".*foo", "at its beginning"),
        ("a+$", "at its beginning"),
        ("^a*b|c*d", "at its beginning"),
        ("(?:^a|b)*c", "single character or class"),
        ("a?" * 40 + "a" * 40, "ways"),
        ("(a|aa){1,40}$", "ways"),
        ("(a?){9}(a?){9}", "ways"),
        (r"(a*)\1", "can be judged"),
        ("(?=a)", "can be judged"),
        ("(?<n>a)", "can be judged"),
        ("(?m)^a*b", "can be judged"),
        ("[a[b]]*c", "can be judged"),
        ("[a&&[^b]]", "can be judged"),
        (r"\Qa*\E", "can be judged"),
        ("a{100}", "can be judged"),
        ("(a", "can be judged"),
        ("a)", "can be judged"),
        ("^*a", "single character or class"),
        ("a" * 1001, "longer"),
    ],
)
def test_what_may_be_tried_in_too_many_ways_is_refused(pattern, words):
    with pytest.raises(UnboundedPattern, match=words):
        check_regex(pattern)


@pytest.mark.parametrize("pattern", ["a", "%a", "a%", "%a%", "a%b", "a%b%%", "%%a_b%", r"%\%a%"])
def test_a_pattern_of_like_may_search_for_one_thing(pattern):
    check_like(pattern, "\\")


@pytest.mark.parametrize("pattern", ["%a%b", "a%b%c", "%a%b%", "%_%a%", r"%\\%a"])
def test_a_pattern_of_like_may_not_search_again_from_each_letter(pattern):
    with pytest.raises(UnboundedPattern, match="several conditions"):
        check_like(pattern, "\\")


atoms = st.sampled_from(["a", "b", ".", "[ab]", r"\w"])
pieces = st.recursive(
    st.tuples(atoms, st.sampled_from(["", "?", "*", "+", "{0,2}", "{2}", "{1,}"])).map("".join),
    lambda inner: st.tuples(
        st.lists(inner, min_size=1, max_size=3), st.sampled_from(["", "?", "{1,2}", "+"])
    ).map(lambda group: f"({'|'.join(group[0])}){group[1]}"),
    max_leaves=6,
)


class Counted:
    """Counts the ways in which an expression is tried, as Java tries them: depth first."""

    def __init__(self, pattern):
        self._tree = re._parser.parse(pattern)
        self.steps = 0

    def run(self, text):
        self.steps = 0
        for start in range(len(text) + 1):
            if self._match(list(self._tree), text, start, lambda _at: True):
                break
        return self.steps

    def _match(self, parts, text, at, then):
        self.steps += 1
        if not parts:
            return then(at)
        (kind, argument), rest = parts[0], parts[1:]
        name = str(kind)
        if name == "AT":
            is_there = at == 0 if str(argument) == "AT_BEGINNING" else at == len(text)
            return is_there and self._match(rest, text, at, then)
        if name == "SUBPATTERN":
            inner = list(argument[3])
            return self._match(inner, text, at, lambda end: self._match(rest, text, end, then))
        if name == "BRANCH":
            return any(self._match([*list(each), *rest], text, at, then) for each in argument[1])
        if name == "MAX_REPEAT":
            least, most, inner = argument
            return self._repeat(list(inner), least, most, text, at, rest, then)
        is_letter = at < len(text) and (name == "ANY" or text[at] != "!")
        fits = is_letter and (name != "LITERAL" or ord(text[at]) == argument)
        return fits and self._match(rest, text, at + 1, then)

    def _repeat(self, inner, least, most, text, at, rest, then):
        def again(end):
            return end > at and self._repeat(inner, least - 1, most - 1, text, end, rest, then)

        if most > 0 and self._match(inner, text, at, again):
            return True
        return least <= 0 and self._match(rest, text, at, then)


@given(st.lists(pieces, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_twice_the_text_takes_about_twice_the_steps(parts, is_anchored, has_end):
    pattern = "^" * is_anchored + "".join(parts) + "$" * has_end
    try:
        check_regex(pattern)
    except UnboundedPattern:
        assume(False)
    counted = Counted(pattern)
    for letter in "ab":
        short, long = (counted.run(letter * length + "!") for length in (60, 120))
        assert long <= 2 * short + 10 * WAYS_MAX
