"""Why the source takes no filters: Spark lets them act on queries that do not have them.

Fails when the installed PySpark no longer has the defect. Then implement `pushFilters` for
`partition`, `created_at` and `offset`, at least for that version, and rewrite "Filters are not
pushed down" in the reference.
"""

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, LessThanOrEqual

ENABLED = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def numbers(spark):
    """A source of the numbers 1 to 100 that takes the filter it is given."""

    class Reader(DataSourceReader):
        last = 100

        def pushFilters(self, filters):  # noqa: N802 (Spark's)
            for each in filters:
                if isinstance(each, LessThanOrEqual):
                    self.last = min(self.last, each.value)
                else:
                    yield each

        def read(self, partition):
            return iter([(number,) for number in range(1, self.last + 1)])

    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "numbers_to_a_hundred"

        def schema(self):
            return "id INT"

        def reader(self, schema):
            return Reader()

    spark.dataSource.register(Numbers)
    spark.conf.set(ENABLED, "true")
    yield spark.read.format("numbers_to_a_hundred").load()
    spark.conf.unset(ENABLED)


def test_a_filter_that_was_pushed_still_acts_on_the_next_query(numbers):
    filtered = numbers.where("id <= 10").count()

    assert (filtered, numbers.count()) == (10, 10)
