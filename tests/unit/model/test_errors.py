import importlib
import pickle
import pkgutil

import pytest

import skep
from skep.model.errors import BadRequest, Overloaded, Refused, SkepError, Unavailable


def all_subclasses(cls):
    for subclass in cls.__subclasses__():
        yield subclass
        yield from all_subclasses(subclass)


def every_error():
    for module in pkgutil.walk_packages(skep.__path__, "skep."):
        if module.name != "skep.__main__":
            importlib.import_module(module.name)
    return sorted(set(all_subclasses(SkepError)), key=lambda error: error.__qualname__)


EVERY_ERROR = every_error()
PUBLIC_ERRORS = [error for error in EVERY_ERROR if not error.__name__.startswith("_")]


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_the_docstring_is_the_default_message(error):
    assert error().message == error.__doc__.strip().splitlines()[0]


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_a_given_message_replaces_the_default(error):
    assert error("what happened").message == "what happened"
    assert str(error("what happened")) == "what happened"


def test_every_code_names_one_error():
    codes = [error.code for error in PUBLIC_ERRORS]

    assert sorted(codes) == sorted(set(codes))


@pytest.mark.parametrize("error", PUBLIC_ERRORS)
def test_only_errors_of_the_moment_are_retryable(error):
    assert error.retryable == issubclass(error, Overloaded | Unavailable)
    assert not (error.retryable and issubclass(error, BadRequest | Refused))


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_an_error_survives_the_way_between_processes(error):
    restored = pickle.loads(pickle.dumps(error("what happened")))

    assert type(restored) is error
    assert restored.message == "what happened"


def test_overload_says_when_to_come_back():
    assert Overloaded().retry_after_s == 1
    assert Overloaded(retry_after_s=7).retry_after_s == 7
