/*
take_leadership: become or stay the one who does a kind of background work.

Takes   p_service: the kind of work. p_holder: who asks. p_seconds: for how long from now.
Returns whether p_holder is the leader until then.
Locks   the skep.leadership row.
Why     A row with an end, not an advisory lock: it survives poolers, says who holds it, and is
        over by itself when its holder freezes. Only the database's clock decides.
*/
create function skep.take_leadership(p_service text, p_holder uuid, p_seconds double precision)
returns boolean
language plpgsql as $$
#variable_conflict use_column
begin
  insert into skep.leadership as l (service, holder, expires_at)
  values (p_service, p_holder, skep.now() + make_interval(secs => p_seconds))
  on conflict (service) do update
  set holder = excluded.holder, expires_at = excluded.expires_at
  where l.holder = excluded.holder or l.expires_at <= skep.now();
  return found;
end $$;
