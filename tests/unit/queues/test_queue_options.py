"""Options of queues: the places that list them agree."""

import msgspec
import pytest

from skep.broker.queues.configure import COLUMNS, Configure
from skep.db.access.functions import Functions
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.queue_options import OptionChanges, QueueOptions


def wire_names(shape):
    return [field.encode_name for field in msgspec.structs.fields(shape)]


def test_every_option_can_be_changed_and_is_stored():
    assert wire_names(OptionChanges) == wire_names(QueueOptions)
    assert set(COLUMNS) == set(wire_names(QueueOptions))


@pytest.mark.parametrize("shape", [OptionChanges, QueueOptions])
def test_every_option_is_described_in_the_document(shape):
    _, schemas = msgspec.json.schema_components([shape])
    properties = schemas[shape.__name__]["properties"]

    described = {
        name
        for name, spelled in properties.items()
        if any("description" in part for part in [spelled, *spelled.get("anyOf", [])])
    }

    assert described == set(COLUMNS)


class Silent:
    """A database that knows nothing and must not be asked to change."""

    async def call(self, statement, *arguments):
        assert "show_queue" in statement
        return []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"leaseTime": "long"}, "option leaseTime must be a whole number"),
        ({"leaseTime": True}, "option leaseTime must be a whole number"),
        ({"leaseTime": -1}, "option leaseTime must be between 0 and 2147483647"),
        ({"retentionEnabled": 1}, "option retentionEnabled must be true or false"),
        ({"ackMode": "both"}, "option ackMode must be one of cumulative, individual"),
        ({"overflow": 1}, "option overflow must be one of reject, drop_oldest"),
        ({"jsonSchema": "x"}, "option jsonSchema must be an object or null"),
    ],
    ids=str,
)
async def test_a_value_that_fits_no_column_never_reaches_the_database(options, error):
    with pytest.raises(BadRequest, match=error):
        await Configure(Functions(Silent())).configure_queue(
            "hive", namespace=None, task=None, options=options
        )


async def test_a_queue_that_does_not_exist_cannot_be_shown():
    with pytest.raises(NotFound, match="Queue not found"):
        await Configure(Functions(Silent())).show("hive")


async def test_encryption_needs_a_key():
    options = {"encryptionEnabled": True}

    with pytest.raises(Refused):
        await Configure(Functions(Silent())).configure_queue(
            "hive", namespace=None, task=None, options=options
        )
