/*
assert_leadership: refuse background work to whoever is not its leader (any more).

Takes   p_service, p_holder: as take_leadership.
Returns nothing.
Raises  SK423 when p_holder does not hold an unexpired lease.
Locks   none.
Why     A process that was stopped for a minute wakes up in the belief that it leads. The first
        thing each step does is to ask here. A step that began in time may end late; that is
        harmless, because steps are short and lock the rows they decide about.
*/
create function skep.assert_leadership(p_service text, p_holder uuid) returns void
language plpgsql stable as $$
#variable_conflict use_column
begin
  perform 1 from skep.leadership l
  where l.service = p_service and l.holder = p_holder and l.expires_at > skep.now();
  if not found then
    raise exception 'the lease on % is not held by %', p_service, p_holder
      using errcode = 'SK423';
  end if;
end $$;
