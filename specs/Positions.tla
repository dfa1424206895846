----------------------------- MODULE Positions ------------------------------
\* Read the log with Spark by snapshots, and commit each micro-batch once.
\*
\* Writers begin (and get a transaction id), commit late, or abort. A position is a snapshot: which
\* transactions had ended. A micro-batch is what its end sees and its start does not. The driver
\* notes the end of a batch in its checkpoint, tasks stage what they read, and one transaction of
\* the sink moves the staged rows and notes the epoch. The driver is killed at any step and begins
\* again from its checkpoint. The server crashes, too: open transactions are gone, and ids that
\* only they had are given to others.
EXTENDS Naturals, FiniteSets

CONSTANTS
  XidMax,       \* transactions in all
  EpochsMax,    \* micro-batches
  CrashesMax,   \* of the server
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  next_xid,     \* the id that the next writer gets
  open,         \* transactions under way
  committed,    \* transactions that committed, each with one message
  planned,      \* checkpoint: the position at the end of each epoch that was planned
  phase,        \* of the driver: idle, planned, staged, committed
  staged,       \* what the tasks of the epoch read
  epoch,        \* the newest epoch that the checkpoint calls finished
  sink,         \* how often each message was written
  recorded,     \* the newest epoch that the sink's record knows
  crashes

vars == <<next_xid, open, committed, planned, phase, staged, epoch, sink, recorded, crashes>>

Xids == 1..XidMax
Max(S) == IF S = {} THEN 0 ELSE CHOOSE n \in S : \A m \in S : m <= n
Nothing == [xmax |-> 1, open |-> {}]

Init ==
  /\ next_xid = 1 /\ open = {} /\ committed = {}
  /\ planned = [e \in {0} |-> Nothing]
  /\ phase = "idle" /\ staged = {} /\ epoch = 0
  /\ sink = [x \in Xids |-> 0] /\ recorded = 0
  /\ crashes = 0

Begin ==
  /\ next_xid <= XidMax
  /\ open' = open \union {next_xid}
  /\ next_xid' = next_xid + 1
  /\ UNCHANGED <<committed, planned, phase, staged, epoch, sink, recorded, crashes>>

Commit(x) ==
  /\ x \in open
  /\ open' = open \ {x}
  /\ committed' = committed \union {x}
  /\ UNCHANGED <<next_xid, planned, phase, staged, epoch, sink, recorded, crashes>>

Abort(x) ==
  /\ x \in open
  /\ open' = open \ {x}
  /\ UNCHANGED <<next_xid, committed, planned, phase, staged, epoch, sink, recorded, crashes>>

\* What is not committed is gone, and so are the ids above everything that reached the disk.
Crash ==
  /\ crashes < CrashesMax
  /\ crashes' = crashes + 1
  /\ open' = {}
  /\ next_xid' = Max(committed) + 1
  /\ UNCHANGED <<committed, planned, phase, staged, epoch, sink, recorded>>

Sees(position, x) == x < position.xmax /\ x \notin position.open

\* take_position: the server's snapshot, cut right behind the newest message that it sees.
Position ==
  IF Variant = "is a transaction id"
  THEN [xmax |-> Max(committed) + 1, open |-> {}]
  ELSE IF Variant = "is not cut"
  THEN [xmax |-> next_xid, open |-> open]
  ELSE [xmax |-> Max(committed) + 1, open |-> {x \in open : x < Max(committed)}]

Between(from, to) == {x \in committed : Sees(to, x) /\ ~Sees(from, x)}

\* The driver notes where the next epoch ends before it reads anything.
Plan ==
  /\ phase = "idle" /\ epoch < EpochsMax
  /\ planned' = [e \in 0..(epoch + 1) |-> IF e = epoch + 1 THEN Position ELSE planned[e]]
  /\ phase' = "planned"
  /\ UNCHANGED <<next_xid, open, committed, staged, epoch, sink, recorded, crashes>>

\* read_span, and tasks that stage what they read; other attempts of theirs are not named later.
Stage ==
  /\ phase = "planned"
  /\ staged' = Between(planned[epoch], planned[epoch + 1])
  /\ phase' = "staged"
  /\ UNCHANGED <<next_xid, open, committed, planned, epoch, sink, recorded, crashes>>

\* commit_sink: messages and the record of the epoch in one transaction.
CommitSink ==
  /\ phase = "staged"
  /\ IF recorded >= epoch + 1 /\ Variant # "keeps no record"
     THEN UNCHANGED <<sink, recorded>>
     ELSE /\ sink' = [x \in Xids |-> sink[x] + (IF x \in staged THEN 1 ELSE 0)]
          /\ recorded' = epoch + 1
  /\ phase' = "committed"
  /\ UNCHANGED <<next_xid, open, committed, planned, staged, epoch, crashes>>

Finish ==
  /\ phase = "committed"
  /\ epoch' = epoch + 1
  /\ phase' = "idle"
  /\ staged' = {}
  /\ UNCHANGED <<next_xid, open, committed, planned, sink, recorded, crashes>>

\* The driver dies; the next one repeats an epoch that was planned and not finished.
KillDriver ==
  /\ phase \in {"planned", "staged", "committed"}
  /\ phase' = "planned"
  /\ staged' = {}
  /\ UNCHANGED <<next_xid, open, committed, planned, epoch, sink, recorded, crashes>>

Next ==
  \/ Begin \/ Crash \/ Plan \/ Stage \/ CommitSink \/ Finish \/ KillDriver
  \/ \E x \in Xids : Commit(x) \/ Abort(x)

Spec == Init /\ [][Next]_vars

\* What a finished position has seen was written to the sink exactly once; no late commit is lost.
ExactlyOnce ==
  phase = "idle" =>
    \A x \in committed : sink[x] = IF Sees(planned[epoch], x) THEN 1 ELSE 0

\* Nothing is written twice, at any moment.
NothingTwice == \A x \in Xids : sink[x] <= 1

\* A repeated epoch reads the same messages: what a planned position sees does not change.
PositionsAreStable ==
  phase \in {"staged", "committed"} =>
    staged = Between(planned[epoch], planned[epoch + 1])
=============================================================================
