-- fetch_segments: the segments that reads by offset ask for, each read up to so many bytes.
-- Takes   per entry, in parallel arrays: p_request (1-based, ascending), p_queue, p_partition,
--         p_offset (the first wanted), p_bytes. p_bytes_max: per request.
-- Returns per entry, in order: its segments, of which the first may hold messages before the
--         offset; or one row without a segment. queue_id: null if the queue does not exist. head,
--         tail: of the partition; 0 and 1 if it was never written.
-- Why     One snapshot: offset order is commit order, so what lies between an offset and the head
--         is complete, and nothing appears there later. An entry gets its first segment whatever
--         its size, as long as its request has bytes left; the others follow until either is
--         spent, so the cost depends on what is returned, not on what there is.
create function skep.fetch_segments(
  p_request integer[], p_queue text[], p_partition text[], p_offset bigint[], p_bytes bigint[],
  p_bytes_max bigint[])
returns table (
  entry integer, queue_id integer, head bigint, tail bigint, first bigint, created_at timestamptz,
  body bytea)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_request integer := 0;
  v_request_left bigint;
  v_left bigint;
  v_partition_id bigint;
  v_is_found boolean;
begin
  for i in 1 .. cardinality(p_queue) loop
    if p_request[i] <> v_request then
      v_request := p_request[i];
      v_request_left := p_bytes_max[v_request];
    end if;
    entry := i;
    select q.id, p.id, coalesce(p.head, 0), coalesce(p.tail, 1)
    into queue_id, v_partition_id, head, tail
    from skep.queue q
    left join skep.partition p on p.queue_id = q.id and p.name = p_partition[i]
    where q.name = p_queue[i];
    v_is_found := false;
    if v_request_left > 0 and p_offset[i] between tail and head then
      v_left := least(p_bytes[i], v_request_left);
      for first, created_at, body in
        select s.first, s.created_at, s.body
        from skep.segment s
        where s.partition_id = v_partition_id and s.last >= p_offset[i]
          and s.first >= coalesce(
            (select b.first from skep.segment b
             where b.partition_id = v_partition_id and b.first <= p_offset[i]
             order by b.first desc limit 1),
            p_offset[i])
        order by s.first
      loop
        v_is_found := true;
        return next;
        v_left := v_left - octet_length(body);
        v_request_left := v_request_left - octet_length(body);
        exit when v_left <= 0;
      end loop;
    end if;
    if not v_is_found then
      first := null;
      created_at := null;
      body := null;
      return next;
    end if;
  end loop;
end $$;
