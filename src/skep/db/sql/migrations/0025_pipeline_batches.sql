/*
The last micro-batches of a pipeline: when each began, how many rows it read, how long it took.

A few of them, as whoever runs it says: enough to see whether batches grow longer.
*/
alter table skep.pipeline add column recent json;
