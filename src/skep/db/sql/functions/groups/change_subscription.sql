/*
change_subscription: let a group's subscriptions start at another time.

Takes   p_group: its name, on whatever queues. p_moment.
Returns how many subscriptions were changed.
Locks   skep.consumer_group rows in id order.
Why     It changes where the group starts when its progress is forgotten (forget_partitions), and, if
        that lies ahead, in partitions to come. Cursors stay where they are: to move them is a seek.
*/
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
