pytest_plugins = [
    "tests.fixtures.coroutines",
    "tests.fixtures.postgres",
    "tests.fixtures.broker",
    "tests.fixtures.proxy",
]
