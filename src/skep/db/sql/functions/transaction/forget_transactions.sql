/*
forget_transactions: drop the record of transactions that nobody can ask about any more.

Takes   p_age_s: how old, in seconds, a record must be.
Returns how many were dropped, at most 10000 of them.
Locks   the rows it deletes, skipping locked ones.
Why     A broker repeats a lost call within seconds; after that its record has no reader.
*/
create function skep.forget_transactions(p_age_s integer) returns bigint
language sql as $$
  with dropped as (
    delete from skep.settled_transaction t
    where t.id in (
      select o.id from skep.settled_transaction o
      where o.settled_at < skep.now() - make_interval(secs => p_age_s)
      order by o.settled_at limit 10000
      for update skip locked)
    returning 1
  )
  select count(*) from dropped;
$$;
