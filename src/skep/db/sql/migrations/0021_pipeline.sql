/*
Pipelines: what runs on Spark between queues, as whoever runs it says.

One row per pipeline, kept when it ends, so that it can be shown and started again. What it has
computed and how far it has come is in its checkpoint; this is for people, and for stopping it.
*/
create table skep.pipeline (
  name text primary key constraint pipeline__name_length check (length(name) between 1 and 100),
  definition json not null,
  definition_hash text not null,      -- of what the checkpoint depends on
  checkpoint text not null,
  run_id uuid not null,               -- new at each start: whoever reports under another is told to end
  runner text not null,               -- host and process
  master text not null,
  state text not null constraint pipeline__state
    check (state in ('starting', 'running', 'stopped', 'failed')),
  should_stop boolean not null default false,
  position json,                      -- by sink and source; null before the first micro-batch
  batches bigint not null default 0,  -- of this run
  messages bigint not null default 0, -- read by this run
  rate double precision not null default 0,   -- messages per second, of the last micro-batch
  lag_messages bigint,
  lag_s bigint,
  last_error text,
  started_at timestamptz not null,
  seen_at timestamptz not null,
  ended_at timestamptz
);
