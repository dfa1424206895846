import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.db.schema.plan import (
    Ledger,
    MigrationChanged,
    PostgresTooOld,
    SchemaTooNew,
    plan_schema,
    require_supported,
)
from tests.support.sql_source import sql_source

object_names = st.sampled_from(["ack", "push", "queue", "segment", "stats"])
paths = st.one_of(
    st.integers(1, 6).map(lambda number: f"migrations/{number:04}_step.sql"),
    object_names.map(lambda name: f"functions/{name}.sql"),
    object_names.map(lambda name: f"views/{name}_view.sql"),
)
sources = st.dictionaries(paths, st.sampled_from(["select 1", "select 2"])).map(sql_source)


def recorded(source):
    """The ledger of a database that has everything in `source`."""
    return Ledger(
        {sql.number: (sql.name, sql.checksum) for sql in source.migrations()},
        {(sql.kind, sql.name): sql.checksum for sql in (*source.functions(), *source.views())},
    )


@given(source=sources)
def test_nothing_sets_a_source_apart_from_its_own_record(source):
    plan = plan_schema(source, recorded(source))

    assert (plan.unknown, plan.altered, plan.differences, plan.code) == ((), (), (), None)


@given(before=sources, after=sources)
def test_carrying_out_a_plan_leads_to_the_record_of_the_source(before, after):
    ledger = recorded(before)
    plan = plan_schema(after, ledger)

    if plan.code:
        for key in plan.code.removed:
            del ledger.code[key]
        ledger.code.update({(sql.kind, sql.name): sql.checksum for sql in plan.code.create})

    assert ledger.code == recorded(after).code


@given(before=sources, after=sources)
def test_the_migrations_of_a_plan_are_those_without_a_record_in_ascending_order(before, after):
    plan = plan_schema(after, recorded(before))

    wanted = {sql.number for sql in after.migrations()} - {s.number for s in before.migrations()}
    assert [sql.number for sql in plan.pending] == sorted(wanted)


@given(before=sources, after=sources)
def test_what_is_dropped_by_a_plan_is_created_by_it_or_has_no_file(before, after):
    code = plan_schema(after, recorded(before)).code

    if code:
        dropped = {*code.drop_functions, *code.drop_views}
        created = {sql.name for sql in code.create}
        assert dropped - created == {name for _, name in code.removed}


def test_any_change_of_code_creates_all_views_after_the_functions():
    before = {"functions/f.sql": "old", "functions/g.sql": "", "views/v.sql": "", "views/w.sql": ""}
    plan = plan_schema(
        sql_source({**before, "functions/f.sql": "new"}), recorded(sql_source(before))
    )

    assert [sql.name for sql in plan.code.create] == ["f", "v", "w"]


def test_an_unknown_migration_is_refused_with_its_name():
    ledger = recorded(sql_source({"migrations/0007_future.sql": ""}))

    with pytest.raises(SchemaTooNew, match="0007_future"):
        plan_schema(sql_source({}), ledger).require_known()


@pytest.mark.parametrize("path", ["migrations/0001_a.sql", "migrations/0001_renamed.sql"])
def test_an_applied_migration_with_another_text_or_name_is_refused_with_its_path(path):
    ledger = recorded(sql_source({"migrations/0001_a.sql": "select 1"}))

    with pytest.raises(MigrationChanged, match=path):
        plan_schema(
            sql_source({path: "select 2" if "_a" in path else "select 1"}), ledger
        ).require_unaltered()


@pytest.mark.parametrize("version", [140000, 150013, 180006])
def test_postgres_14_and_later_are_supported(version):
    require_supported(version)


@pytest.mark.parametrize("version", [90624, 130099, 139999])
def test_postgres_before_14_is_refused(version):
    with pytest.raises(PostgresTooOld, match="14 or newer"):
        require_supported(version)
