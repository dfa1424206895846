/*
A message that failed comes again at once, unless its queue says how long to wait: this is what
Queen does, whatever delay it shows. Queues that exist keep the delay they have.
*/
alter table skep.queue alter column retry_delay_ms set default 0;
