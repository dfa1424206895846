-- remove_queue: make a queue unreachable.
-- Returns the queue's id, for sweep_removed_queue; null if there is no such queue.
-- Raises  SK411 if a hold keeps messages of it for a reader.
-- Locks   skep.hold in share mode, as held_from; the skep.queue row for update, which waits for
--         sessions that create partitions or groups; then its skep.scheduled rows, skipping those
--         being sequenced, which find the queue gone and are dropped.
-- Why     The queue and its groups are few rows, its partitions may be a hundred thousand. Without
--         the former, polls and acks find no group, pushes no queue (see push_segments), listings
--         neither; the name can be created anew and inherits nothing. Readers on Spark without a
--         hold are told by the record in skep.removed_span whether they had read everything. An
--         operator can release a hold first.
create function skep.remove_queue(p_name text) returns integer
language plpgsql as $$
declare
  v_id integer;
  v_reader text;
begin
  lock table skep.hold in share mode;
  select q.id into v_id from skep.queue q where q.name = p_name for update;
  if not found then
    return null;
  end if;
  select h.name into v_reader from skep.hold h
  where h.queue_id = v_id and h.updated_at > skep.now() - make_interval(secs => h.keep_s)
    and exists (
      select from skep.segment s
      where s.queue_id = v_id and s.xid >= pg_snapshot_xmin(h.position)
        and not pg_visible_in_snapshot(s.xid, h.position))
  order by h.name limit 1;
  if found then
    raise exception using errcode = 'SK411', message = format(
      'a hold keeps messages of the queue for the reader %s: release it first', v_reader);
  end if;
  delete from skep.scheduled s using (
    select w.id from skep.scheduled w where w.queue_id = v_id for update skip locked
  ) w
  where s.id = w.id;
  delete from skep.consumer_group g where g.queue_id = v_id;
  delete from skep.queue q where q.id = v_id;
  update skep.removed_span r set queue = p_name where r.queue_id = v_id;
  insert into skep.removed_span (queue_id, queue, upto, created_to)
  select v_id, p_name, coalesce(n.xid, '0'), coalesce(n.created_at, skep.now())
  from (values (1)) one left join lateral (
    select s.xid, s.created_at from skep.segment s where s.queue_id = v_id
    order by s.xid desc limit 1
  ) n on true;
  insert into skep.removed_queue (queue_id, name, removed_at) values (v_id, p_name, skep.now());
  return v_id;
end $$;
