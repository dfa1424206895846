-- confirm_duplicates: check keys that the broker's cache suspects at given offsets.
-- Returns per message still there; item is 1-based.
-- Locks   none: a committed message inside the window is a fact that no lock can change.
-- Why     The cache remembers offsets, so a duplicate costs one look-up by primary key instead of a
--         probe of the whole window under the partition's lock. Outside the window the same key is
--         no duplicate; another key means that two fingerprints collided.
create function skep.confirm_duplicates(p_partition_id bigint[], p_offset bigint[], p_key bytea[])
returns table (item integer, is_same_key boolean, is_in_window boolean)
language sql stable as $$
  select i.ord::integer,
         substr(s.keys, (i.at - s.first)::integer * 16 + 1, 16) = i.key,
         -- A window of zero is empty, even if the clock was set back.
         q.dedup_window_s > 0
           and s.created_at > skep.now() - make_interval(secs => q.dedup_window_s)
  from unnest(p_partition_id, p_offset, p_key) with ordinality i(id, at, key, ord)
  cross join lateral (select p.queue_id from skep.partition p where p.id = i.id offset 0) p
  cross join lateral (
    select q.dedup_window_s from skep.queue q where q.id = p.queue_id offset 0
  ) q
  cross join lateral (
    select s.first, s.last, s.created_at, s.keys from skep.segment s
    where s.partition_id = i.id and s.first <= i.at order by s.first desc limit 1
  ) s
  where i.at between s.first and s.last;
$$;
