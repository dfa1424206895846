from hypothesis import settings

pytest_plugins = [
    "tests.fixtures.coroutines",
    "tests.fixtures.postgres",
    "tests.fixtures.broker",
    "tests.fixtures.proxy",
]

# How long an example takes depends on what else the machine does.
settings.register_profile("skep", deadline=None)
settings.load_profile("skep")
