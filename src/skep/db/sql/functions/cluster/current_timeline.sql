-- current_timeline: the server's present timeline.
-- Returns its number.
-- Why     A promotion begins another one. The control file may lag behind it, the name of the
--         current WAL file does not; a standby writes none.
create function skep.current_timeline() returns integer
language sql as $$
  select case when pg_is_in_recovery() then (pg_control_checkpoint()).timeline_id
    else ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer end;
$$;
