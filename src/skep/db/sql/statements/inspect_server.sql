-- inspect_server: facts about the PostgreSQL under a broker.
select
    current_setting('server_version_num')::int as version_num,
    current_setting('server_version') as version,
    pg_is_in_recovery() as is_standby,
    clock_timestamp() as clock,
    current_user::text as role,
    has_database_privilege(current_database(), 'create') as can_create_schema,
    (
        select pg_has_role(nspowner, 'usage')
        from pg_namespace
        where nspname = 'skep'
    ) as owns_schema,
    current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true), '0')::int as connections_max,
    (
        select count(*)::int
        from pg_stat_activity
        where backend_type = 'client backend' and pid <> pg_backend_pid()
    ) as connections_used,
    (
        select count(*)::int
        from pg_stat_activity
        where application_name like 'skep worker %'
    ) as connections_ours,
    (
        select coalesce(jsonb_object_agg(application, held), '{}')::text
        from (
            select
                case
                    when application_name like 'skep worker %' then 'brokers'
                    else coalesce(nullif(application_name, ''), 'unnamed')
                end as application,
                count(*) as held
            from pg_stat_activity
            where backend_type = 'client backend' and pid <> pg_backend_pid()
            group by 1
        ) as users
    ) as connections_by,
    pg_database_size(current_database()) as size_bytes,
    (
        select coalesce(array_agg(extname::text order by extname), '{}')
        from pg_extension
        where extname <> 'plpgsql'
    ) as extensions,
    (
        select jsonb_object_agg(name, setting)::text
        from pg_settings
        where name in (
            'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts',
            'default_transaction_isolation', 'default_transaction_read_only'
        )
    ) as settings;
