-- note_snapshot: note for readers which transactions have ended by now.
-- Takes   p_every: how far apart snapshots are. p_keep: how long one is kept.
-- Returns whether it was time for one.
-- Locks   the skep.past_snapshot rows that were kept long enough.
-- Why     Segments are found by transaction, and transactions know no time. Committed durably:
--         then what the snapshot has seen survives a crash, too, and no id is given out again.
create function skep.note_snapshot(p_every interval, p_keep interval) returns boolean
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
begin
  perform set_config('synchronous_commit', 'on', true);
  insert into skep.past_snapshot (taken_at, system, snapshot)
  select v_now, skep.system_identity(), pg_current_snapshot()
  where not exists (select from skep.past_snapshot p
                    where p.taken_at > v_now - p_every and p.system = skep.system_identity())
  on conflict (taken_at) do nothing;
  if not found then
    return false;
  end if;
  delete from skep.past_snapshot p where p.taken_at < v_now - p_keep;
  return true;
end $$;
