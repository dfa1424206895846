-- take_leadership: become or stay the leader of a kind of background work.
-- Takes   p_seconds: the duration of the lease from now.
-- Returns whether p_holder leads until then.
-- Locks   the skep.leadership row, then as note_timeline.
-- Why     A row with an expiry, not an advisory lock: it survives poolers, names its holder, and
--         ends by itself when the holder freezes. Only the database's clock decides.
create function skep.take_leadership(p_service text, p_holder uuid, p_seconds double precision)
returns boolean
language plpgsql as $$
begin
  insert into skep.leadership as l (service, holder, expires_at)
  values (p_service, p_holder, skep.now() + make_interval(secs => p_seconds))
  on conflict (service) do update
  set holder = excluded.holder, expires_at = excluded.expires_at
  where l.holder = excluded.holder or l.expires_at <= skep.now();
  if not found then
    return false;
  end if;
  perform skep.note_timeline();
  return true;
end $$;
