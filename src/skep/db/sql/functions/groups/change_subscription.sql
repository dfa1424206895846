-- change_subscription: change the start of a group's subscriptions.
-- Takes   p_group: a name, on all queues that have it.
-- Returns how many subscriptions changed.
-- Locks   skep.consumer_group rows for no key update, in id order.
-- Why     It decides where the group starts when its progress is forgotten (forget_partitions) and,
--         if p_moment lies ahead, in new partitions. Cursors stay; a seek moves them.
create function skep.change_subscription(p_group text, p_moment timestamptz) returns bigint
language plpgsql as $$
declare
  v_count bigint;
begin
  perform 1 from skep.consumer_group g where g.name = p_group order by g.id for no key update;
  update skep.consumer_group g
  set subscription_mode = 'timestamp', subscribed_from = p_moment
  where g.name = p_group;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
