-- schedule_messages: store messages to be delivered later.
-- Takes   per message, in parallel arrays; p_deliver_at, or p_delay_s seconds from now where that
--         is null. p_waiting_max: messages that may wait per queue. p_resolve: this repeats a call
--         whose outcome was lost. p_nonce: a number of each message's own, the same in a repeated
--         call; null for new ones.
-- Returns per message: item (1-based), outcome: scheduled (scheduled_id, deliver_at, seconds until
--         then); duplicate (of a waiting message, or one before it in the call: scheduled_id,
--         deliver_at; of a stored one: partition_id, message_offset); full (too many wait); gone
--         (no such queue); again (the first holder of the key is not visible yet, or gone).
-- Locks   none beyond the new rows, inserted in (queue, partition, key) order.
-- Why     Duplicates are searched without a lock; what slips through is found under the partition's
--         lock when the message is sequenced. Without a window all messages wait, told apart by
--         their nonces. A repeated call knows its own rows by their envelopes, or their nonces. Ids
--         are drawn in item order, which breaks ties of time; rows are inserted in key order, so
--         that calls with the same keys never deadlock. Waiting messages are counted in the index
--         up to the limit, once per queue and call; concurrent calls may exceed it by what they
--         carry.
create function skep.schedule_messages(
  p_queue_id integer[], p_partition text[], p_key bytea[], p_transaction_id text[],
  p_envelope bytea[], p_deliver_at timestamptz[], p_delay_s double precision[],
  p_waiting_max integer, p_resolve boolean, p_nonce bigint[] default null)
returns table (
  item integer, outcome text, scheduled_id bigint, deliver_at timestamptz,
  seconds double precision, partition_id bigint, message_offset bigint)
language plpgsql
set enable_hashjoin = on  -- the hot connections forbid it; item by item this would be quadratic
as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
begin
  return query
  with given as materialized (
    select u.id, u.item::integer as item, u.queue_id, u.partition, u.key, u.transaction_id,
           u.envelope,
           coalesce(u.deliver_at, v_now + make_interval(secs => u.delay_s)) as deliver_at,
           case when q.dedup_window_s = 0 then coalesce(u.nonce, u.id) else 0 end as nonce
    from (
      select nextval('skep.scheduled_id_seq') as id, u.*
      from unnest(p_queue_id, p_partition, p_key, p_transaction_id, p_envelope, p_deliver_at,
                  p_delay_s, p_nonce) with ordinality
             u(queue_id, partition, key, transaction_id, envelope, deliver_at, delay_s, nonce, item)
    ) u
    left join lateral (
      select q.dedup_window_s from skep.queue q where q.id = u.queue_id offset 0
    ) q on true
  ),
  room as materialized (
    select d.queue_id,
           (select count(*) from (
              select from skep.scheduled s where s.queue_id = d.queue_id limit p_waiting_max
            ) w) < p_waiting_max as has_room
    from (select distinct g.queue_id from given g) d
    where exists (select from skep.queue q where q.id = d.queue_id)
  ),
  stored as materialized (
    select l.items[d.index + 1] as item, p.id as partition_id, d.message_offset
    from (
      select g.queue_id, g.partition, array_agg(g.item order by g.item) as items,
             string_agg(g.key, ''::bytea order by g.item) as keys
      from given g group by g.queue_id, g.partition
    ) l
    cross join lateral (
      select p.id from skep.partition p
      where p.queue_id = l.queue_id and p.name = l.partition offset 0
    ) p
    cross join lateral skep.find_duplicates(p.id, l.keys, 0, 'infinity', v_now, false) f
    cross join lateral unnest(f.duplicate_index, f.duplicate_offset) d(index, message_offset)
  ),
  added as (
    insert into skep.scheduled (
      id, queue_id, partition, key, nonce, transaction_id, envelope, deliver_at, created_at)
    overriding system value
    select g.id, g.queue_id, g.partition, g.key, g.nonce, g.transaction_id, g.envelope,
           g.deliver_at, v_now
    from given g
    join room r on r.queue_id = g.queue_id and r.has_room
    where not exists (select from stored s where s.item = g.item)
    order by g.queue_id, g.partition, g.key, g.id
    on conflict (queue_id, partition, key, nonce) do nothing
    returning id, queue_id, partition, key, nonce, deliver_at
  )
  select g.item,
         case when r.queue_id is null then 'gone'
              when a.id = g.id or w.is_own then 'scheduled'
              when s.item is not null or a.id is not null or w.id is not null then 'duplicate'
              when r.has_room then 'again'
              else 'full' end,
         coalesce(a.id, w.id), coalesce(a.deliver_at, w.deliver_at),
         extract(epoch from coalesce(a.deliver_at, w.deliver_at) - v_now)::double precision,
         s.partition_id, s.message_offset
  from given g
  left join room r on r.queue_id = g.queue_id
  left join stored s on s.item = g.item
  left join added a
    on a.queue_id = g.queue_id and a.partition = g.partition and a.key = g.key
       and a.nonce = g.nonce
  left join lateral (
    select w.id, w.deliver_at, w.nonce <> 0 or p_resolve and w.envelope = g.envelope as is_own
    from skep.scheduled w
    where a.id is null and s.item is null
      and w.queue_id = g.queue_id and w.partition = g.partition and w.key = g.key
      and w.nonce = g.nonce
    offset 0
  ) w on true;
end $$;
