------------------------------- MODULE WakeUp -------------------------------
\* Mark a partition idle, and wake it: `available_at` of one cursor, pushes and polls at once.
\*
\* A poll looks only at partitions that are ready. One that finds nothing may mark the cursor idle;
\* from then on only a push makes it ready again. A push locks the partition, stores, and makes
\* cursors ready that it sees idle. A transaction sees what is committed, not what another one has
\* written and not committed: a push could look at a cursor that is about to become idle, see it
\* ready and leave it alone. So a poll marks a cursor idle only with a share lock on the partition,
\* which it never waits for: while a push is in flight it cannot be had, and the cursor stays ready.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Pushers,
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  head,         \* committed messages
  acked,        \* delivered and acknowledged
  is_ready,     \* the cursor's available_at, committed
  push,         \* per pusher: idle, locked, waking, handing, done, over
  poll,         \* idle, claimed, marking, leaving
  found,        \* the head that the poll saw
  partition,    \* who holds the partition's row: pushers exclusively, "poll" as a share
  cursor        \* who holds the cursor's row

vars == <<head, acked, is_ready, push, poll, found, partition, cursor>>

Init ==
  /\ head = 0 /\ acked = 0 /\ is_ready = TRUE
  /\ push = [p \in Pushers |-> "idle"]
  /\ poll = "idle" /\ found = 0
  /\ partition = "free" /\ cursor = "free"

\* lock_partitions, push_guaranteed, push_to_poll: the row is held until the commit.
LockPartition(p) ==
  /\ push[p] = "idle" /\ partition = "free"
  /\ partition' = p
  /\ push' = [push EXCEPT ![p] = "locked"]
  /\ UNCHANGED <<head, acked, is_ready, poll, found, cursor>>

\* wake_idle, hand_over, push_to_poll: a cursor that is seen idle is locked, waiting if need be, and
\* made ready. One that is seen ready is left alone.
LookAtCursor(p) ==
  /\ push[p] = "locked"
  /\ IF is_ready
     THEN push' = [push EXCEPT ![p] = "done"] /\ UNCHANGED cursor
     ELSE /\ cursor = "free"
          /\ cursor' = p
          /\ push' = [push EXCEPT ![p] = "waking"]
  /\ UNCHANGED <<head, acked, is_ready, poll, found, partition>>

\* hand_over, push_to_poll: a cursor that is seen idle is locked and claimed for a poll that waits.
\* Here that acknowledges at once, so the cursor stays idle.
HandOver(p) ==
  /\ push[p] = "locked" /\ ~is_ready /\ acked = head /\ cursor = "free"
  /\ cursor' = p
  /\ push' = [push EXCEPT ![p] = "handing"]
  /\ UNCHANGED <<head, acked, is_ready, poll, found, partition>>

CommitPush(p) ==
  /\ push[p] \in {"done", "waking", "handing"}
  /\ head' = head + 1
  /\ acked' = IF push[p] = "handing" THEN head + 1 ELSE acked
  /\ is_ready' = (is_ready \/ push[p] = "waking")
  /\ cursor' = IF cursor = p THEN "free" ELSE cursor
  /\ partition' = "free"
  /\ push' = [push EXCEPT ![p] = "over"]
  /\ UNCHANGED <<poll, found>>

\* pop_messages: claim a ready cursor, and see how much there is.
Claim ==
  /\ poll = "idle" /\ is_ready /\ cursor = "free"
  /\ cursor' = "poll"
  /\ found' = head
  /\ poll' = "claimed"
  /\ UNCHANGED <<head, acked, is_ready, push, partition>>

\* take_partitions with messages: here they are acknowledged at once, and the cursor stays ready.
Take ==
  /\ poll = "claimed" /\ found > acked
  /\ acked' = found
  /\ cursor' = "free"
  /\ poll' = "idle"
  /\ UNCHANGED <<head, is_ready, push, found, partition>>

\* take_partitions without messages: idle only with the share lock, and only if under it there is
\* still nothing.
MarkIdle ==
  /\ poll = "claimed" /\ found <= acked
  /\ IF Variant = "marks without the lock"
     THEN poll' = "marking" /\ UNCHANGED partition
     ELSE IF partition # "free"
     THEN poll' = "leaving" /\ UNCHANGED partition
     ELSE IF head > acked /\ Variant # "does not look again"
     THEN poll' = "leaving" /\ UNCHANGED partition
     ELSE poll' = "marking" /\ partition' = "poll"
  /\ UNCHANGED <<head, acked, is_ready, push, found, cursor>>

CommitPoll ==
  /\ poll \in {"marking", "leaving"}
  /\ is_ready' = (poll = "leaving")
  /\ cursor' = "free"
  /\ partition' = IF partition = "poll" THEN "free" ELSE partition
  /\ poll' = "idle"
  /\ UNCHANGED <<head, acked, push, found>>

Next ==
  \/ \E p \in Pushers : LockPartition(p) \/ LookAtCursor(p) \/ HandOver(p) \/ CommitPush(p)
  \/ Claim \/ Take \/ MarkIdle \/ CommitPoll

\* Transactions that can go on do; polls come again and again while the partition is ready.
Spec ==
  /\ Init /\ [][Next]_vars
  /\ WF_vars(Claim \/ Take \/ MarkIdle \/ CommitPoll)
  /\ \A p \in Pushers : WF_vars(
       LockPartition(p) \/ LookAtCursor(p) \/ HandOver(p) \/ CommitPush(p))

\* Invariants 2 and 3: what can be read is ready, unless a transaction that decides is under way.
NoWakeUpIsLost ==
  head > acked /\ poll = "idle" /\ (\A p \in Pushers : push[p] \in {"idle", "over"}) => is_ready

\* No transaction waits for another in a circle: something can always go on until all is read.
EverythingIsDelivered == <>[](acked = Cardinality(Pushers))
=============================================================================
