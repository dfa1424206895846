-- preview_seek: what a seek in all partitions of a queue would skip and replay.
-- Takes   p_to, p_moment: as aim_seek. p_exact_max: up to so many partitions are counted.
-- Returns one row, in messages.
-- Why     Above p_exact_max a sample answers, so that the preview never takes longer than the seek.
create function skep.preview_seek(
  p_group_id integer, p_to text, p_moment timestamptz, p_exact_max integer)
returns table (partitions bigint, skipped bigint, replayed bigint, is_estimated boolean)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_sample_blocks constant integer := 50;
  v_partition_id bigint[];
  v_next text;
  v_weight double precision := 1;
begin
  select l.partition_id, l.next_name into v_partition_id, v_next
  from skep.consumer_group g
  cross join lateral skep.page_partitions(g.queue_id, '', p_exact_max) l
  where g.id = p_group_id;
  if v_next is not null then
    select array_agg(s.partition_id), max(s.weight) into v_partition_id, v_weight
    from skep.sample_cursors(array[p_group_id], v_sample_blocks) s;
  end if;

  return query
  select round(count(*) * v_weight)::bigint,
         coalesce(round(sum(a.skipped)::double precision * v_weight), 0)::bigint,
         coalesce(round(sum(a.replayed)::double precision * v_weight), 0)::bigint,
         v_next is not null
  from skep.aim_seek(p_group_id, v_partition_id, p_to, p_moment, null) a;
end $$;
