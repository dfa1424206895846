-- publish_progress: record a reader's progress and keep the rest of the log for it.
-- Takes   p_name; p_queues: names. p_position: null leaves it; p_seen: the snapshot in it.
--         p_keep_s: how long the rest is kept unless renewed.
-- Returns how many queues hold something back for it.
-- Locks   the skep.reader row, then as note_timeline, then as place_hold.
-- Why     One call, so that progress and hold cannot contradict each other.
create function skep.publish_progress(
  p_name text, p_queues text[], p_position json, p_seen pg_snapshot, p_keep_s integer)
returns bigint
language plpgsql as $$
begin
  update skep.reader r
  set queues = p_queues, position = coalesce(p_position, r.position), updated_at = skep.now()
  where r.name = p_name;
  perform skep.note_timeline();
  return (
    select count(*) from (select distinct q from unnest(p_queues) q order by q) n
    cross join lateral skep.place_hold(n.q, p_name, p_seen, p_keep_s) h
  );
end $$;
