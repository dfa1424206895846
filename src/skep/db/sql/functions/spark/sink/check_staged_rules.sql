-- check_staged_rules: check that staged rows follow the current rules of their queues.
-- Takes   p_write_id, p_epoch, p_attempt: the staging.
-- Raises  SK409 if a queue requires encryption, or has another schema, than when its rows were
--         staged. SK429 if a queue that rejects overflow has no room.
-- Locks   none; the caller holds the queues for share.
-- Why     Tasks encode rows long before the commit. Unlike a push, a write is refused only for
--         changes that make its segments wrong: it may be hours of work. As with a push, an empty
--         queue takes a batch larger than its maximum.
create function skep.check_staged_rules(p_write_id text, p_epoch bigint, p_attempt bigint[])
returns void
language plpgsql stable
set enable_hashjoin = on
as $$
declare
  v_stale text;
  v_full text;
begin
  with staged as (
    select s.queue, s.is_sealed, s.schema_digest, sum(s.messages) as messages,
           true as has_schema
    from skep.staged_segment s
    where s.write_id = p_write_id and s.epoch = p_epoch and s.attempt = any(p_attempt)
    group by s.queue, s.is_sealed, s.schema_digest
    union all
    select distinct m.queue, m.is_sealed, m.schema_digest, 0, true
    from skep.staged_message m
    where m.write_id = p_write_id and m.epoch = p_epoch and m.attempt = any(p_attempt)
    union all
    select distinct r.queue, r.is_sealed, null, 0, false
    from skep.staged_reject r
    where r.write_id = p_write_id and r.epoch = p_epoch and r.attempt = any(p_attempt)
  ),
  by_queue as (
    select q.id, q.name, q.max_size, q.overflow, sum(s.messages) as messages,
           bool_or(q.encryption_enabled and not s.is_sealed
                   or s.has_schema and q.json_schema is not null
                      and md5(q.json_schema::text) is distinct from s.schema_digest) as is_stale
    from staged s
    cross join lateral (select q.* from skep.queue q where q.name = s.queue offset 0) q
    group by q.id, q.name, q.max_size, q.overflow
  )
  select min(b.name) filter (where b.is_stale),
         min(b.name) filter (
           where b.max_size > 0 and b.overflow = 'reject' and b.messages > 0
             and (select k between greatest(1, b.max_size - b.messages + 1) and b.max_size
                  from skep.queue_backlog(b.id, b.max_size) k))
  into v_stale, v_full
  from by_queue b;

  if v_stale is not null then
    raise exception using errcode = 'SK409',
      message = format('queue %s was reconfigured while rows were written to it', v_stale);
  end if;
  if v_full is not null then
    raise exception using errcode = 'SK429', message = format('queue %s is full', v_full);
  end if;
end $$;
