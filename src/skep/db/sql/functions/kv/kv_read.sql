-- kv_read: read keys, and lists of keys, at one instant.
-- Takes   p_ns, p_key: the keys. p_list_*: as kv_list.
-- Returns a row per key that is live, in any order, with its place from 1; and the rows of kv_list
--         with their list.
-- Why     One statement sees one snapshot, in which every other call has happened or not. It takes
--         no lock, so readers wait for nothing.
create function skep.kv_read(
  p_ns text[], p_key text[], p_list_ns text[], p_list_prefix text[], p_list_after text[],
  p_list_limit integer[], p_list_bytes bigint)
returns table (
  list integer, place bigint, key text, value text, version bigint, expires_at timestamptz,
  updated_at timestamptz, has_room boolean)
language sql stable as $$
  select null::integer, k.place, e.key, e.value::text, e.version, e.expires_at, e.updated_at, true
  from (select skep.now() as now) t
  cross join unnest(p_ns, p_key) with ordinality k(ns, key, place)
  cross join lateral (
    select e.* from skep.kv_entry e where e.ns = k.ns and e.key = k.key offset 0
  ) e
  where e.expires_at is null or e.expires_at > t.now
  union all
  select l.list, l.place, l.key, l.value, l.version, l.expires_at, l.updated_at, l.has_room
  from skep.kv_list(p_list_ns, p_list_prefix, p_list_after, p_list_limit, p_list_bytes) l
  where cardinality(p_list_ns) > 0;
$$;
