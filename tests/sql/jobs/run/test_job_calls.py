"""Every statement with which Python calls the functions for jobs fits them, on this server."""

import pytest

from skep.jobs import store

CALLS = {name: text for name, text in vars(store).items() if name.endswith("_CALL")}


@pytest.mark.parametrize("name", CALLS)
async def test_case_40_a_call_is_prepared_and_its_parameters_have_types(chains, name):
    prepared = await chains.connection.prepare(CALLS[name])

    kinds = [each.name for each in prepared.get_parameters()]
    assert len(kinds) == max((n for n in range(1, 20) if f"${n}" in CALLS[name]), default=0)
    assert "unknown" not in kinds
    assert prepared.get_attributes(), "nothing comes back"


@pytest.mark.parametrize("name", ["START_CALL", "SETTLE_CALL", "HOLD_CALL", "CANCEL_CALL"])
def test_case_40_a_call_in_a_users_transaction_spells_its_types_out(name):
    """Other drivers send parameters without types, and an array without one is a text."""
    text = CALLS[name]

    assert all(f"${n}::" in text for n in range(1, 20) if f"${n}" in text)
