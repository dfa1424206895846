----------------------------- MODULE Positions ------------------------------
\* Read the log with Spark by snapshots, and commit each micro-batch once.
\*
\* Writers begin (and get a transaction id), commit late, or abort. A position is a snapshot: which
\* transactions had ended. A micro-batch is what its end sees and its start does not. The driver
\* notes the end of a batch in its checkpoint, tasks stage what they read, and one transaction of
\* the sink moves the staged rows and notes the epoch. The driver is killed at any step and begins
\* again from its checkpoint. The server crashes, too: open transactions are gone, and ids that
\* only they had are given to others. A failover to a standby that was behind begins a new timeline:
\* there committed transactions are gone as well, and their ids are given to others.
EXTENDS Naturals, FiniteSets

CONSTANTS
  XidMax,       \* transactions in all
  EpochsMax,    \* micro-batches
  CrashesMax,   \* of the server
  FailoversMax, \* to a standby, which has what was committed at some moment
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  next_xid,     \* the id that the next writer gets
  open,         \* transactions under way
  timeline,     \* the history that the server is on
  committed,    \* messages of transactions that committed on it or on one before it
  standby,      \* those that the standby has
  planned,      \* checkpoint: the position at the end of each epoch that was planned
  phase,        \* of the driver: idle, planned, staged, committed
  staged,       \* what the tasks of the epoch read
  epoch,        \* the newest epoch that the checkpoint calls finished
  sink,         \* how often each message was written
  recorded,     \* the newest epoch that the sink's record knows
  crashes

server == <<next_xid, open, timeline, committed, standby, crashes>>
reader == <<planned, phase, staged, epoch, sink, recorded>>
vars == <<server, reader>>

Xids == 1..XidMax
\* A message: the timeline on which it was created, and its transaction, which alone may come again.
Messages == (1..(FailoversMax + 1)) \X Xids
Of(messages) == {m[2] : m \in messages}
Max(S) == IF S = {} THEN 0 ELSE CHOOSE n \in S : \A m \in S : m <= n
Nothing == [xmax |-> 1, open |-> {}, timeline |-> 1, newest |-> <<1, 0>>]

Init ==
  /\ next_xid = 1 /\ open = {} /\ timeline = 1 /\ committed = {} /\ standby = {}
  /\ planned = [e \in {0} |-> Nothing]
  /\ phase = "idle" /\ staged = {} /\ epoch = 0
  /\ sink = [m \in Messages |-> 0] /\ recorded = 0
  /\ crashes = 0

Begin ==
  /\ next_xid <= XidMax
  /\ open' = open \union {next_xid}
  /\ next_xid' = next_xid + 1
  /\ UNCHANGED <<timeline, committed, standby, crashes, reader>>

Commit(x) ==
  /\ x \in open
  /\ open' = open \ {x}
  /\ committed' = committed \union {<<timeline, x>>}
  /\ UNCHANGED <<next_xid, timeline, standby, crashes, reader>>

Abort(x) ==
  /\ x \in open
  /\ open' = open \ {x}
  /\ UNCHANGED <<next_xid, timeline, committed, standby, crashes, reader>>

\* What is not committed is gone, and so are the ids above everything that reached the disk.
Crash ==
  /\ crashes < CrashesMax
  /\ crashes' = crashes + 1
  /\ open' = {}
  /\ next_xid' = Max(Of(committed)) + 1
  /\ UNCHANGED <<timeline, committed, standby, reader>>

\* The standby catches up; it is behind until it does so again.
Replicate ==
  /\ timeline <= FailoversMax
  /\ standby' = committed
  /\ UNCHANGED <<next_xid, open, timeline, committed, crashes, reader>>

\* The standby is promoted, and goes on with what it has.
Failover ==
  /\ timeline <= FailoversMax
  /\ timeline' = timeline + 1
  /\ open' = {}
  /\ committed' = standby
  /\ next_xid' = Max(Of(standby)) + 1
  /\ UNCHANGED <<standby, crashes, reader>>

Sees(position, x) == x < position.xmax /\ x \notin position.open

Newest ==
  IF committed = {} THEN <<timeline, 0>>
  ELSE CHOOSE m \in committed : m[2] = Max(Of(committed))

\* take_position: the server's snapshot, cut right behind the newest message that it sees.
Position ==
  LET newest == Max(Of(committed))
      xmax == IF Variant = "is not cut" THEN next_xid ELSE newest + 1
      below == IF Variant = "is a transaction id" THEN {} ELSE {x \in open : x < xmax}
  IN [xmax |-> xmax, open |-> below, timeline |-> timeline, newest |-> Newest]

\* position_evidence: on another timeline a position means the same if the newest message that it
\* has seen is there, for ids below it are not given out again. Otherwise the reader refuses.
IsValid(position) ==
  \/ Variant = "knows no timeline"
  \/ position.timeline = timeline
  \/ position.newest[2] = 0
  \/ position.newest \in committed

Between(from, to) == {m \in committed : Sees(to, m[2]) /\ ~Sees(from, m[2])}

\* The driver notes where the next epoch ends before it reads anything.
Plan ==
  /\ phase = "idle" /\ epoch < EpochsMax /\ IsValid(planned[epoch])
  /\ planned' = [e \in 0..(epoch + 1) |-> IF e = epoch + 1 THEN Position ELSE planned[e]]
  /\ phase' = "planned"
  /\ UNCHANGED <<server, staged, epoch, sink, recorded>>

\* read_span, and tasks that stage what they read; other attempts of theirs are not named later.
Stage ==
  /\ phase = "planned" /\ IsValid(planned[epoch]) /\ IsValid(planned[epoch + 1])
  /\ staged' = Between(planned[epoch], planned[epoch + 1])
  /\ phase' = "staged"
  /\ UNCHANGED <<server, planned, epoch, sink, recorded>>

\* commit_sink: messages and the record of the epoch in one transaction.
CommitSink ==
  /\ phase = "staged"
  /\ IF recorded >= epoch + 1 /\ Variant # "keeps no record"
     THEN UNCHANGED <<sink, recorded>>
     ELSE /\ sink' = [m \in Messages |-> sink[m] + (IF m \in staged THEN 1 ELSE 0)]
          /\ recorded' = epoch + 1
  /\ phase' = "committed"
  /\ UNCHANGED <<server, planned, staged, epoch>>

Finish ==
  /\ phase = "committed"
  /\ epoch' = epoch + 1
  /\ phase' = "idle"
  /\ staged' = {}
  /\ UNCHANGED <<server, planned, sink, recorded>>

\* The driver dies; the next one repeats an epoch that was planned and not finished.
KillDriver ==
  /\ phase \in {"planned", "staged", "committed"}
  /\ phase' = "planned"
  /\ staged' = {}
  /\ UNCHANGED <<server, planned, epoch, sink, recorded>>

Next ==
  \/ Begin \/ Crash \/ Replicate \/ Failover \/ Plan \/ Stage \/ CommitSink \/ Finish \/ KillDriver
  \/ \E x \in Xids : Commit(x) \/ Abort(x)

Spec == Init /\ [][Next]_vars

\* What a finished position has seen was written to the sink exactly once; no late commit is lost.
ExactlyOnce ==
  phase = "idle" /\ IsValid(planned[epoch]) =>
    \A m \in committed : sink[m] = IF Sees(planned[epoch], m[2]) THEN 1 ELSE 0

\* Nothing is written twice, at any moment.
NothingTwice == \A m \in Messages : sink[m] <= 1

\* A repeated epoch reads the same messages, as far as they are still there: what a planned position
\* sees does not change.
PositionsAreStable ==
  phase \in {"staged", "committed"} /\ IsValid(planned[epoch]) /\ IsValid(planned[epoch + 1]) =>
    staged \intersect committed = Between(planned[epoch], planned[epoch + 1])
=============================================================================
