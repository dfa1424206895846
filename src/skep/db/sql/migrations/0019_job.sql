/*
Durable job chains: what is to be done, in which order, and what became of it.

A job is described once (job) and scheduled elsewhere (open_job): the rows that claims, retries and
unblocking change are narrow, few and gone when the job is done, so that nothing slows down as
finished jobs pile up. No foreign key points at the hot rows; the functions keep them whole.

Locks: chains in ascending id, then open jobs in ascending id. Whoever starts or continues with a
blocker holds the blocker's chain for share, so that it cannot close unnoticed.
*/

-- The names of jobs, and how many of a name may run. Null = no limit.
create table skep.job_type (
  id integer generated always as identity primary key,
  name text not null constraint job_type__name_length check (length(name) between 1 and 255),
  concurrency integer,          -- running at once, everywhere
  key_concurrency integer,      -- running at once with the same limit_key
  rate_limit integer,           -- started per rate_period_s
  rate_period_s double precision,
  tokens double precision not null default 0,
  refilled_at timestamptz,
  created_at timestamptz not null default clock_timestamp()
);
create unique index job_type__name on skep.job_type (name);

create table skep.chain (
  id uuid primary key,          -- also the id of its first job
  type_id integer not null,
  state text not null default 'open' constraint chain__state_known
    check (state in ('open', 'completed', 'failed', 'cancelled')),
  last_job_id uuid not null,    -- the only one that can be open
  last_position integer not null default 0,
  created_at timestamptz not null,
  closed_at timestamptz,
  deadline_at timestamptz,
  key text constraint chain__key_length check (length(key) <= 1000),
  parent_job_id uuid,
  trace text,
  error text
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);
create index chain__type on skep.chain (type_id, id);
-- Nearly all chains are completed; those who look for the others must not wade through them.
create index chain__state on skep.chain (state, id) where state <> 'completed';
create index chain__closed on skep.chain (closed_at, id) where closed_at is not null;
create index chain__deadline on skep.chain (deadline_at)
  where deadline_at is not null and state = 'open';
create index chain__parent on skep.chain (parent_job_id) where parent_job_id is not null;

/*
A job is written when it is created and once more when it ends. Its state is in no index, so that
the second write stays on the page (heap-only): open jobs are found in open_job, failed and
cancelled ones are the last of a chain in that state.
*/
create table skep.job (
  id uuid primary key,
  chain_id uuid not null,
  position integer not null,
  type_id integer not null,
  state text not null default 'open' constraint job__state_known
    check (state in ('open', 'completed', 'continued', 'failed', 'cancelled')),
  priority smallint not null,
  max_attempts integer not null,
  limit_key text,
  input json not null,
  output json,
  error text,
  attempts integer not null default 0,
  worker_id uuid,
  created_at timestamptz not null,
  started_at timestamptz,       -- of the attempt that ended it
  finished_at timestamptz,
  trace text
) with (
  fillfactor = 80,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);
create unique index job__position on skep.job (chain_id, position);
create index job__type on skep.job (type_id, id);

/*
What the scheduler needs of a job that is not finished. open_blockers > 0: blocked. worker_id: it
runs there. due_at in the future: scheduled. Otherwise ready. (worker_id, attempt) is the fencing
token: attempt grows with every claim, so no two owners ever have the same.
*/
create table skep.open_job (
  job_id uuid primary key,
  chain_id uuid not null,
  type_id integer not null,
  priority smallint not null,
  due_at timestamptz not null,
  open_blockers integer not null default 0,
  blockers integer not null default 0,
  attempt integer not null default 0,
  failures integer not null default 0,
  max_attempts integer not null,
  limit_key text,
  worker_id uuid,
  claimed_at timestamptz
) with (
  fillfactor = 70, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
create unique index open_job__chain on skep.open_job (chain_id);
create index open_job__ready on skep.open_job (type_id, priority, due_at, job_id)
  where worker_id is null and open_blockers = 0;
create index open_job__keyed on skep.open_job (type_id, limit_key, priority, due_at, job_id)
  where worker_id is null and open_blockers = 0;
create index open_job__running on skep.open_job (worker_id, job_id) where worker_id is not null;
create index open_job__running_type on skep.open_job (type_id, limit_key)
  where worker_id is not null;

-- A chain that a job waits for. Kept afterwards: the job reads its output through it.
create table skep.blocker (
  job_id uuid not null,
  position integer not null,
  chain_id uuid not null,
  is_fatal boolean not null,    -- the job fails when this chain does; otherwise it waits on
  constraint blocker__place primary key (job_id, position)
);
create unique index blocker__chain on skep.blocker (chain_id, job_id);

-- An attempt that did not end its job. The one that did is in the job's own row.
create table skep.job_attempt (
  job_id uuid not null,
  attempt integer not null,
  outcome text not null constraint job_attempt__outcome_known
    check (outcome in ('failed', 'lost', 'rescheduled', 'released')),
  worker_id uuid,
  started_at timestamptz,
  ended_at timestamptz not null,
  error text,
  constraint job_attempt__number primary key (job_id, attempt)
);

-- The chain that a key belongs to: the newest that was started with it.
create table skep.chain_key (
  type_id integer not null,
  key text not null,
  chain_id uuid not null,
  is_open boolean not null default true,
  started_at timestamptz not null,
  constraint chain_key__name primary key (type_id, key)
) with (fillfactor = 80);

-- A process that runs jobs. All it has claimed is its own until expires_at: one lease for all.
create table skep.job_worker (
  id uuid primary key,
  name text not null,
  enrolled_at timestamptz not null,
  expires_at timestamptz not null
) with (fillfactor = 50);

create table skep.job_schedule (
  name text primary key constraint job_schedule__name_length check (length(name) between 1 and 255),
  type text not null,
  input json not null,
  cron text not null,
  timezone text not null,
  missed text not null constraint job_schedule__missed_known
    check (missed in ('skip', 'once', 'all')),
  priority smallint not null,
  max_attempts integer not null,
  is_enabled boolean not null default true,
  next_at timestamptz not null,
  last_at timestamptz,
  last_chain_id uuid
);
create index job_schedule__next on skep.job_schedule (next_at) where is_enabled;
