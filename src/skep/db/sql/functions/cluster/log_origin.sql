-- log_origin: whether the log was made on this server, and if not, how it got here.
-- Returns here; moved: by a copy of the files that has another identifier, such as pg_upgrade makes,
--         and transaction ids mean what they meant; restored: from a dump, and they do not.
-- Why     In copied files rows are still marked with the transactions that wrote them. A restore
--         writes all rows anew, so that their own ids and those on record differ; and what is on
--         record may lie ahead of this server.
create function skep.log_origin() returns text
language sql stable as $$
  select case
    when exists (
      select from skep.queue q cross join lateral (
        select s.xid from skep.segment s where s.queue_id = q.id order by s.xid desc limit 1) n
      where n.xid >= pg_snapshot_xmax(pg_current_snapshot())) then 'restored'
    when i.server = skep.server_identity() then 'here'
    when i.xmin::text::bigint = (i.xid::text::numeric % 4294967296)::bigint
      and coalesce((
        select bool_or(n.xmin::text::bigint = (n.xid::text::numeric % 4294967296)::bigint)
        from (select s.xmin, s.xid from skep.segment s
              where s.queue_id > 0 order by s.partition_id, s.first limit 1000) n), true)
    then 'moved'
    else 'restored' end
  from skep.identity i;
$$;
