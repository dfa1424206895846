-- note_timeline: record that this transaction commits on the present timeline.
-- Locks   the skep.timeline row, unless another session has it.
-- Why     Where the record is still there after a failover, no id up to this one is given out
--         again: a reader that has seen no more can go on. Called with what is written now and
--         then anyway; another session's record is as good.
create function skep.note_timeline() returns void
language plpgsql as $$
declare
  v_timeline constant integer := skep.current_timeline();
begin
  update skep.timeline t set xid = pg_current_xact_id()
  from (select n.number from skep.timeline n where n.number = v_timeline for update skip locked) n
  where t.number = n.number;
  if not exists (select from skep.timeline t where t.number = v_timeline) then
    insert into skep.timeline (number, xid) values (v_timeline, pg_current_xact_id())
    on conflict (number) do nothing;
  end if;
end $$;
