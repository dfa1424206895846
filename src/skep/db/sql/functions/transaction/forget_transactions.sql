-- forget_transactions: delete old records of transactions.
-- Takes   p_age_s: the minimum age in seconds.
-- Returns how many were deleted, at most 10000.
-- Locks   the deleted rows, skipping locked ones.
-- Why     A broker repeats a lost call within seconds; after that the record is not read again.
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
