/*
What happened to instances, for the charts to point at: a version seen for the first time, starts,
stops and losses. The newest thousand are kept, and every first sight of a version.
*/
create table skep.marker (
  id bigint generated always as identity primary key,
  at timestamptz not null,
  kind text not null
    constraint marker__kind check (kind in ('deploy', 'start', 'restart', 'stop', 'loss')),
  instance text not null,             -- host and port
  version text not null
);
create index marker__at on skep.marker (at);

-- Others have noted that it is lost; null again when it reports.
alter table skep.instance add column is_lost boolean not null default false;

-- Versions that run now are no deploys.
insert into skep.marker (at, kind, instance, version)
select distinct on (i.version) i.started_at, 'deploy', i.host || ':' || i.port, i.version
from skep.instance i order by i.version, i.started_at;
