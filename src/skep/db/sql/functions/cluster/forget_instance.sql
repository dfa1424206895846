/*
forget_instance: an instance ends as planned.

Takes   p_id: which one.
Returns nothing.
Locks   its skep.instance row.
Why     One that says goodbye does not look like one that crashed.
*/
create function skep.forget_instance(p_id uuid)
returns void
language sql as $$
  delete from skep.instance where id = p_id;
$$;
