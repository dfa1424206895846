import os
import sys

from hypothesis import settings

# Brokers, workers and commands are processes of their own, hundreds of them. Where bytecode may not
# be written each would compile the whole package again, which takes a fifth of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = [
    "tests.support.coroutines",
    "tests.support.postgres",
    "tests.support.broker",
    "tests.support.proxy",
]

# How long an example takes depends on what else the machine does.
settings.register_profile("skep", deadline=None)
settings.load_profile("skep")
