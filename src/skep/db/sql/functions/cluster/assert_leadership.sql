-- assert_leadership: refuse background work to a process that is not its leader.
-- Raises  SK423 if p_holder does not hold an unexpired lease.
-- Why     A process that was stopped for a minute wakes up believing that it leads; so each step
--         asks here first. A step that begins in time may end late, which is harmless: steps are
--         short and lock the rows they decide about.
create function skep.assert_leadership(p_service text, p_holder uuid) returns void
language plpgsql stable as $$
begin
  perform 1 from skep.leadership l
  where l.service = p_service and l.holder = p_holder and l.expires_at > skep.now();
  if not found then
    raise exception 'the lease on % is not held by %', p_service, p_holder
      using errcode = 'SK423';
  end if;
end $$;
