-- kv_list: list the live keys of a namespace that begin with a prefix.
-- Takes   per list: p_ns; p_prefix; p_after: only keys behind it; p_limit: at most so many, and one
--         more to tell that there are. p_bytes: values of all together, at least one row.
--         p_has_expired: include what has expired and was not deleted yet.
-- Returns rows in order of key: list, from 1; place, from 1; the columns of the key, and has_room:
--         false and no value where the values before it take p_bytes.
-- Why     Keys are compared by byte. No text of a key is behind a prefix of it followed by 128 times
--         the last character: that many fill a key.
create function skep.kv_list(
  p_ns text[], p_prefix text[], p_after text[], p_limit integer[], p_bytes bigint,
  p_has_expired boolean default false)
returns table (
  list integer, place bigint, key text, value text, version bigint, expires_at timestamptz,
  created_at timestamptz, updated_at timestamptz, is_expired boolean, has_room boolean)
language sql as $$
  with found as materialized (
    select l.list::integer as list, row_number() over (partition by l.list order by e.key) as place,
           e.key, e.value::text as value, e.version, e.expires_at, e.created_at, e.updated_at,
           coalesce(e.expires_at <= t.now, false) as is_expired
    from (select skep.now() as now) t
    cross join unnest(p_ns, p_prefix, p_after, p_limit)
                 with ordinality l(ns, prefix, after, row_limit, list)
    cross join lateral (
      select e.* from skep.kv_entry e
      where e.ns = l.ns and e.key > coalesce(l.after, '') and e.key >= l.prefix
        and e.key <= l.prefix || repeat(chr(1114111), 128) collate "C"
        and (p_has_expired or e.expires_at is null or e.expires_at > t.now)
      order by e.key limit l.row_limit
    ) e
  )
  select f.list, f.place, f.key, case when r.has_room then f.value end, f.version, f.expires_at,
         f.created_at, f.updated_at, f.is_expired, r.has_room
  from (
    select f.*, coalesce(sum(octet_length(f.value)) over (
             partition by f.list order by f.key rows between unbounded preceding and 1 preceding),
             0) as bytes_before
    from found f
  ) f
  cross join lateral (select f.place = 1 or f.bytes_before < p_bytes as has_room) r
  order by f.list, f.place;
$$;
