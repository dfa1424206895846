-- forget_transactions: delete old records of transactions.
-- Returns how many were deleted, at most 10000.
-- Locks   as delete_before.
-- Why     A broker repeats a lost call within seconds; after that the record is not read again.
create function skep.forget_transactions(p_age_s integer) returns bigint
language sql as $$
  select skep.delete_before(
    'settled_transaction', 'o.settled_at < $1 order by o.settled_at',
    skep.now() - make_interval(secs => p_age_s), 10000);
$$;
