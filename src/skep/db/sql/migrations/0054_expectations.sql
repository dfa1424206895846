/*
What a pipeline expects of its results, and how many of the present run did not meet it, as its
runner reports them.
*/
alter table skep.pipeline add column expectations json;
