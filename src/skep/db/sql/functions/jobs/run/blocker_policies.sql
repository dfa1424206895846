-- blocker_policies: what callers of the release before mean by p_is_fatal.
-- Returns per flag the policy on_failure of a blocker.
-- Why     Applications and workers run on with the old calls until they are deployed again.
create function skep.blocker_policies(p_is_fatal boolean[]) returns text[]
language sql immutable as $$
  select array(
    select case when u.is_fatal then 'fail' else 'wait' end
    from unnest(p_is_fatal) with ordinality u(is_fatal, item) order by u.item);
$$;
