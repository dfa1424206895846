pytest_plugins = ["tests.fixtures.coroutines", "tests.fixtures.postgres"]
