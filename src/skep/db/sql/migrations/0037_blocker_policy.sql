/*
What becomes of a job when a chain that it waits for fails or is cancelled: the policy has a third
choice, and a name.
*/
alter table skep.blocker
  add column on_failure text not null default 'wait' constraint blocker__on_failure_known
    check (on_failure in ('wait', 'fail', 'ignore'));
update skep.blocker set on_failure = 'fail' where is_fatal;
-- Read by nothing any more; a later migration removes it.
alter table skep.blocker alter column is_fatal set default false;
