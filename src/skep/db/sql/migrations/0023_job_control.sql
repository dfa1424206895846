/*
What people see of running jobs, and how they hold them up.
*/

-- Jobs of a paused type are not claimed; those that run go on.
alter table skep.job_type add column is_paused boolean not null default false;

-- Chains are looked for by their keys whatever their type, also those that ended.
create index chain__key on skep.chain (key, id) where key is not null;

-- How far a job got, as its handler last said. Only jobs that say something have a row.
create table skep.job_progress (
  job_id uuid primary key,
  attempt integer not null,
  share double precision constraint job_progress__share_bounds check (share between 0 and 1),
  note text constraint job_progress__note_length check (length(note) <= 1000),
  reported_at timestamptz not null
) with (fillfactor = 50);
