"""The benchmark of Skep: what a message costs, in CPU time, on a broker that is really durable.

    python -m benchmarks --help

The modules, from pure to worldly: `stats` (arithmetic), `wire` (HTTP bytes), `goals` (what the
figures are held against), `meter` (CPU, WAL, commits), `floor` (what this machine can do at best),
`drivers` and `generator` (the load, in processes of its own), `plan` and `load` (how the runner
talks to them), `bench` and `scenarios` (what is measured), `stack` and `machine` (what it is
measured on), `run` (all of it in order), `against` (two checkouts in turns), `report` (tables and
JSON).

`aging`, `listings` and `dashboard` stand apart and have commands of their own: what a message costs
as a broker ages, how long the first pages of listings take, what an open page of the dashboard
costs and whether it stays responsive.
"""
