"""What a checkpoint sees of a pipeline's function: what it computes, wherever that is written."""

import functools
import sys
from itertools import count

import pytest

from skep.spark.pipelines.code import described_code
from skep.spark.pipelines.files import load_pipeline
from skep.spark.pipelines.pipeline import definition_hash

FILE = '''
"""Large orders."""
import helpers
from functools import wraps

from skep.spark.pipelines.pipeline import Pipeline, Sink, Source
from helpers import least as smallest
from helpers.more import *

LIMITS = {"a": 1}
LIMITS["b"] = 2
unused = 7


def logged(function):
    @wraps(function)
    def wrapper(a):
        return function(a)

    return wrapper


class Keeper:
    size = 3

    def keep(self, a):
        """Keep some."""
        return a.limit(self.size)


@logged
def compute(a):
    """Say what."""
    from helpers import inner

    unused = Keeper().keep(a)  # all of it
    return starred(inner.of(unused).limit(smallest() + helpers.most() + LIMITS["a"]))


def other(a):
    return a


pipeline = Pipeline(
    name="x", sources={"a": Source(queue="a")}, function=compute, sink=Sink(queue="b")
)
'''
HELPERS = {
    "__init__": (
        "import os\nfrom .values import ONE\n\n"
        "def least():\n    return ONE\n\ndef most():\n    return 9\n\ndef idle():\n    return 0\n"
    ),
    "values": "ONE = 1\nTWO = 2\n",
    "more": "def starred(a):\n    return a\n",
    "inner": "import os\n\ndef of(a):\n    return a.where('x')\n",
}

_numbers = count()


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Return the hash of the pipeline, with some text of one of the files replaced."""

    def digest(file=None, old="", new=""):
        home = tmp_path / str(next(_numbers))
        texts = {"large.py": FILE, **{f"helpers/{name}.py": HELPERS[name] for name in HELPERS}}
        if file is not None:
            assert old in texts[file]
            texts[file] = texts[file].replace(old, new, 1)
        for name, text in texts.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(home)
            for name in [each for each in sys.modules if each.partition(".")[0] == "helpers"]:
                patch.delitem(sys.modules, name)
            try:
                return definition_hash(load_pipeline(str(home / "large.py")))
            finally:
                for name in [each for each in sys.modules if each.partition(".")[0] == "helpers"]:
                    del sys.modules[name]

    return digest


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("large.py", "  # all of it", "  # most of it"),
        ("large.py", '"""Say what."""', '"""Say something else."""'),
        ("large.py", '"""Keep some."""\n', ""),
        ("large.py", "limit(self.size)", "limit(\n            self.size\n        )"),
        ("large.py", "def other(a):\n    return a", "def another(a):\n    return a.limit(3)"),
        ("large.py", "unused = 7", "unused = 8"),
        ("large.py", "Sink(queue=", "Sink(partition='a', queue="),
        ("helpers/__init__.py", "return 0", "return 1"),
        ("helpers/values.py", "TWO = 2", "TWO = 3"),
    ],
)
def test_what_computes_the_same_has_the_same_hash(digest, file, old, new):
    assert digest(file, old, new) == digest()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("large.py", 'LIMITS["a"]', 'LIMITS["b"]'),
        ("large.py", '{"a": 1}', '{"a": 2}'),
        ("large.py", 'LIMITS["b"] = 2', 'LIMITS["b"] = 3'),
        ("large.py", "size = 3", "size = 4"),
        ("large.py", "return function(a)", "return function(a.limit(1))"),
        ("large.py", "@logged\n", ""),
        ("large.py", "least as smallest", "most as smallest"),
        ("helpers/__init__.py", "return 9", "return 10"),
        ("helpers/values.py", "ONE = 1", "ONE = 2"),
        ("helpers/more.py", "return a", "return a.limit(1)"),
        ("helpers/inner.py", "'x'", "'y'"),
    ],
)
def test_what_computes_something_else_has_another_hash(digest, file, old, new):
    assert digest(file, old, new) != digest()


def limited(limit, chosen):
    def compute(a):
        return chosen(a).limit(limit)

    return compute


def of(a, limit):
    return a.limit(limit)


def test_values_that_a_function_was_made_with_are_part_of_it():
    by_one = limited(1, lambda a: a.where("x"))
    described = described_code(by_one)

    assert described_code(limited(1, by_one.__closure__[0].cell_contents)) == described
    assert described_code(limited(2, by_one.__closure__[0].cell_contents)) != described
    assert described_code(limited(1, lambda a: a.where("y"))) != described
    made = [functools.partial(of, limit=1), functools.partial(of, limit=2), of]
    assert len({tuple(described_code(each)) for each in made}) == 3


def test_code_without_a_source_is_described_as_it_was_compiled():
    spaces = [{"__name__": "prompt"} for _ in range(3)]
    for space, limit in zip(spaces, (1, 1, 2), strict=True):
        exec(f"def compute(a):\n    return a.limit({limit})", space)
    first, same, other = (described_code(space["compute"]) for space in spaces)

    assert first == same
    assert first != other
