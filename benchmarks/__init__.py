"""The benchmark of Skep: what a message costs, in CPU time, on a broker that is really durable.

    python -m benchmarks --help

The modules, from pure to worldly: `stats` (arithmetic), `wire` (HTTP bytes), `goals` (what the
figures are held against), `meter` (CPU, WAL, commits), `floor` (what this machine can do at best),
`drivers` and `generator` (the load, in processes of its own), `plan` and `load` (how the runner
talks to them), `bench` and `scenarios` (what is measured), `stack` and `machine` (what it is
measured on), `run` (all of it in order), `against` (two checkouts in turns), `report` (tables and
JSON).

`listings` stands apart and has a command of its own: how long the first pages of listings take. So
does `dashboard`: what an open page of the dashboard costs, and whether it stays responsive.
"""
