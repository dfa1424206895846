async def test_it_names_the_cluster_and_the_database(log):
    system, _, database = (await log.value("select skep.server_identity()")).partition(":")

    assert int(system) == await log.value("select system_identifier from pg_control_system()")
    assert int(database) == await log.value(
        "select oid from pg_database where datname = current_database()"
    )
