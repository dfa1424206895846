/*
Schedules keep apart what an application declares and what an operator decides. Keys may outlive
their chains.
*/
alter table skep.job_schedule
  add column owner text,        -- the application that declares it; null = put by hand
  add column is_paused boolean not null default false,  -- by an operator; no declaration ends it
  add column removed_at timestamptz;    -- its owner does not declare it any more
-- It is not on record what switched these off: they stay off.
update skep.job_schedule set is_paused = true where not is_enabled;
drop index skep.job_schedule__next;
create index job_schedule__next on skep.job_schedule (next_at) where is_enabled and not is_paused;

-- held_until: the chain holds its key so long after its end; null = not at all. Of the keys that
-- are there it is not on record, so those stay.
alter table skep.chain_key
  add column held_until timestamptz default 'infinity',
  add column is_pruned boolean not null default false;  -- the chain is gone, and the key is left
alter table skep.chain_key alter column held_until drop default;
create index chain_key__pruned on skep.chain_key (held_until)
  where is_pruned and held_until < 'infinity';
