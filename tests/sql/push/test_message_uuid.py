from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.model.ids import OFFSET_MAX, PARTITION_ID_MAX, message_id


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(partition_id=st.integers(1, PARTITION_ID_MAX), offset=st.integers(0, OFFSET_MAX))
def test_an_address_is_spelled_as_brokers_spell_it(log, arun, partition_id, offset):
    spelled = arun(log.value("select skep.message_uuid($1, $2)", partition_id, offset))

    assert str(spelled) == message_id(partition_id, offset)
