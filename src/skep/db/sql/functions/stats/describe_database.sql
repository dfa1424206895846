-- describe_database: the state of PostgreSQL itself.
-- Takes   p_limit: entries per list.
-- Returns one JSON object, in the words of the wire.
-- Locks   none: size functions would wait for a session that rebuilds a table, so the size then
--         comes from the last analyze.
-- Why     The first question when a broker is slow. Reads only statistics views and file sizes of
--         the schema skep, and all sessions of the database: what blocks is often another
--         application. Only active sessions and open transactions are shown.
create function skep.describe_database(p_limit integer) returns text
language sql stable as $$
  with taken as materialized (
    select coalesce(i.indrelid, t.oid, l.relation) as relid
    from pg_locks l
    left join pg_index i on i.indexrelid = l.relation
    left join pg_class t on t.reltoastrelid = l.relation
    where l.mode = 'AccessExclusiveLock' and l.relation is not null
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
  ),
  tables as materialized (
    select s.relid, s.relname, s.n_dead_tup, s.n_live_tup, s.n_tup_upd, s.n_tup_hot_upd,
           s.last_vacuum, s.last_autovacuum, s.autovacuum_count, s.autoanalyze_count,
           i.heap_blks_read, i.heap_blks_hit,
           z.table_bytes + z.index_bytes as total_bytes, z.table_bytes, z.index_bytes
    from pg_stat_user_tables s
    join pg_statio_user_tables i on i.relid = s.relid
    cross join lateral (
      select coalesce(sum(c.relpages) filter (where c.relkind <> 'i'), 0) as table_pages,
             coalesce(sum(c.relpages) filter (where c.relkind = 'i'), 0) as index_pages
      from pg_class c
      where c.oid = s.relid
         or c.oid = (select t.reltoastrelid from pg_class t where t.oid = s.relid)
         or c.oid in (select x.indexrelid from pg_index x where x.indrelid = s.relid)
    ) p
    cross join lateral (
      select case when k.is_taken then p.table_pages * k.page else pg_table_size(s.relid) end
               as table_bytes,
             case when k.is_taken then p.index_pages * k.page else pg_indexes_size(s.relid) end
               as index_bytes
      from (
        select exists (select from taken t where t.relid = s.relid) as is_taken,
               current_setting('block_size')::bigint as page
      ) k
    ) z
    where s.schemaname = 'skep'
  ),
  indexes as materialized (
    select i.relname, i.indexrelname, i.idx_blks_read, i.idx_blks_hit
    from pg_statio_user_indexes i where i.schemaname = 'skep'
  ),
  sessions as materialized (
    select a.pid, a.state, a.wait_event_type, a.wait_event, a.query_start, a.xact_start,
           a.application_name, left(a.query, 200) as query,
           cardinality(pg_blocking_pids(a.pid)) > 0 as is_blocked
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid()
      and a.xact_start is not null
    order by a.xact_start limit p_limit
  )
  select jsonb_build_object(
    'database', current_database(),
    'version', current_setting('server_version'),
    'databaseSizeBytes', pg_database_size(current_database()),
    'databaseCache', (
      select jsonb_build_object(
        'database', d.datname, 'diskReads', d.blks_read, 'cacheHits', d.blks_hit,
        'cacheHitRatio', round(100.0 * d.blks_hit / nullif(d.blks_hit + d.blks_read, 0), 2))
      from pg_stat_database d where d.datname = current_database()),
    'tableCache', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'schema', 'skep', 'table', t.relname, 'diskReads', t.heap_blks_read,
        'cacheHits', t.heap_blks_hit, 'cacheHitRatio',
        round(100.0 * t.heap_blks_hit / nullif(t.heap_blks_hit + t.heap_blks_read, 0), 2))), '[]')
      from (select * from tables t
            order by t.heap_blks_read + t.heap_blks_hit desc, t.relname limit p_limit) t),
    'indexCache', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'schema', 'skep', 'table', i.relname, 'index', i.indexrelname,
        'diskReads', i.idx_blks_read, 'cacheHits', i.idx_blks_hit, 'cacheHitRatio',
        round(100.0 * i.idx_blks_hit / nullif(i.idx_blks_hit + i.idx_blks_read, 0), 2))), '[]')
      from (select * from indexes i
            order by i.idx_blks_read + i.idx_blks_hit desc, i.indexrelname limit p_limit) i),
    'cacheSummary', jsonb_build_object(
      'tables', (
        select jsonb_build_object(
          'diskReads', coalesce(sum(t.heap_blks_read), 0),
          'cacheHits', coalesce(sum(t.heap_blks_hit), 0), 'hitRatio',
          round(100.0 * sum(t.heap_blks_hit)
                / nullif(sum(t.heap_blks_hit + t.heap_blks_read), 0), 2))
        from tables t),
      'indexes', (
        select jsonb_build_object(
          'diskReads', coalesce(sum(i.idx_blks_read), 0),
          'cacheHits', coalesce(sum(i.idx_blks_hit), 0), 'hitRatio',
          round(100.0 * sum(i.idx_blks_hit) / nullif(sum(i.idx_blks_hit + i.idx_blks_read), 0), 2))
        from indexes i)),
    'deadTuples', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'schema', 'skep', 'table', t.relname, 'deadTuples', t.n_dead_tup,
        'liveTuples', t.n_live_tup, 'deadPercentage',
        coalesce(round(100.0 * t.n_dead_tup / nullif(t.n_dead_tup + t.n_live_tup, 0), 2), 0),
        'lastVacuum', t.last_vacuum, 'lastAutovacuum', t.last_autovacuum)), '[]')
      from (select * from tables t order by t.n_dead_tup desc, t.relname limit p_limit) t),
    'hotUpdates', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'schema', 'skep', 'table', t.relname, 'totalUpdates', t.n_tup_upd,
        'hotUpdates', t.n_tup_hot_upd, 'hotUpdatePercentage',
        round(100.0 * t.n_tup_hot_upd / nullif(t.n_tup_upd, 0), 2))), '[]')
      from (select * from tables t where t.n_tup_upd > 0
            order by t.n_tup_upd desc, t.relname limit p_limit) t),
    'autovacuumStatus', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'table', t.relname, 'lastAutovacuum', t.last_autovacuum, 'deadTuples', t.n_dead_tup,
        'autovacuumCount', t.autovacuum_count, 'autoanalyzeCount', t.autoanalyze_count)), '[]')
      from (select * from tables t
            order by t.last_autovacuum desc nulls last, t.relname limit p_limit) t),
    'tableSizes', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'table', t.relname, 'totalSize', pg_size_pretty(t.total_bytes),
        'totalSizeBytes', t.total_bytes, 'tableSize', pg_size_pretty(t.table_bytes),
        'tableSizeBytes', t.table_bytes, 'indexSize', pg_size_pretty(t.index_bytes),
        'indexSizeBytes', t.index_bytes)), '[]')
      from (select * from tables t order by t.total_bytes desc, t.relname limit p_limit) t),
    'bufferConfig', jsonb_build_object(
      'sharedBuffers', (select s.setting::bigint from pg_settings s
                        where s.name = 'shared_buffers'),
      'sharedBuffersSize', current_setting('shared_buffers')),
    'activeQueries', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'pid', a.pid, 'duration', extract(epoch from clock_timestamp() - a.query_start),
        'state', a.state, 'query', a.query, 'waitEventType', a.wait_event_type,
        'waitEvent', a.wait_event)), '[]')
      from sessions a where a.state = 'active'),
    'longTransactions', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'pid', a.pid, 'application', a.application_name, 'state', a.state,
        'seconds', extract(epoch from clock_timestamp() - a.xact_start),
        'isBlocked', a.is_blocked)), '[]')
      from sessions a where a.xact_start < clock_timestamp() - interval '5 seconds'),
    'locks', (
      select coalesce(jsonb_agg(jsonb_build_object(
        'mode', l.mode, 'granted', l.granted, 'count', l.count)), '[]')
      from (
        select l.mode, l.granted, count(*) as count
        from pg_locks l
        where l.database = (select d.oid from pg_database d where d.datname = current_database())
          and l.pid <> pg_backend_pid()
        group by l.mode, l.granted order by 3 desc, 1 limit p_limit
      ) l)
  )::text;
$$;
