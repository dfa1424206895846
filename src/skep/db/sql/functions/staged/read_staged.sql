-- read_staged: the staged messages to move into the log next.
-- Takes   p_floor, p_seen: everything that p_seen saw with a commit number up to p_floor was moved;
--         0 and null at first. At least one message is returned, whatever the limits.
-- Returns per message, by commit number, then as staged: snapshot (what this call sees). Without
--         messages one row with only snapshot and read_at.
-- Why     A late commit may have a number below the floor. p_seen tells which transactions that can
--         be: those running then, or started later; their few rows are looked up by transaction id.
--         So no late commit is skipped, and an open transaction costs one look-up and delays no
--         other. Starting at the floor, not at the oldest index entry, keeps the cost in proportion
--         to what is new, even while an old snapshot holds back vacuum. `offset 0` keeps look-ups
--         look-ups whatever the statistics. It reads by the snapshot it returns.
create function skep.read_staged(
  p_floor bigint, p_seen pg_snapshot, p_limit integer, p_bytes bigint)
returns table (
  snapshot text, read_at timestamptz, commit_number bigint, id bigint, queue text, partition text,
  transaction_id text, payload text, headers text, trace_id uuid, deliver_at timestamptz,
  ttl_s double precision)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_transaction record;
  v_count integer := 0;
  v_bytes bigint := 0;
begin
  snapshot := pg_current_snapshot()::text;
  read_at := skep.now();
  for v_transaction in
    select f.xid, f.commit_number
    from (
      select n.xid, n.commit_number
      from (
        select t.xid, t.commit_number from skep.staged_transaction t
        where t.commit_number > p_floor
          -- An operator may have deleted what a transaction staged.
          and exists (select from skep.staged s where s.xid = t.xid offset 0)
        order by t.commit_number limit p_limit
      ) n
      union all
      select t.xid, t.commit_number
      from pg_snapshot_xip(p_seen) o(xid)
      cross join lateral (
        select t.xid, t.commit_number from skep.staged_transaction t where t.xid = o.xid offset 0
      ) t
      where t.commit_number <= p_floor
      union all
      select t.xid, t.commit_number
      from (
        select t.xid, t.commit_number from skep.staged_transaction t
        where t.xid >= pg_snapshot_xmax(p_seen) offset 0
      ) t
      where t.commit_number <= p_floor
    ) f
    order by f.commit_number
  loop
    for commit_number, id, queue, partition, transaction_id, payload, headers, trace_id,
        deliver_at, ttl_s in
      select v_transaction.commit_number, s.id, s.queue, s.partition, s.transaction_id,
             s.payload::text, s.headers::text, s.trace_id, s.deliver_at, s.ttl_s
      from skep.staged s where s.xid = v_transaction.xid order by s.id limit p_limit - v_count
    loop
      return next;
      v_count := v_count + 1;
      v_bytes := v_bytes + octet_length(payload);
      if v_count >= p_limit or v_bytes >= p_bytes then
        return;
      end if;
    end loop;
  end loop;
  if v_count = 0 then
    return next;
  end if;
end $$;
