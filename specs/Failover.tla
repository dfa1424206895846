------------------------------ MODULE Failover ------------------------------
\* Keep messages on disk while the database is away, and store them when it is back.
\*
\* One producer pushes messages into one partition and does not wait for answers. The broker lets one
\* call at a time carry them to the database; they go to the disk while the database is away or while
\* records of their partition wait there or are being written. A push never leaves those behind that
\* came before it, on neither way. A push whose call was lost is spilled too, with the offset up to
\* which the partition was known, above which the drain looks for it. Database and broker are killed
\* at any step. What the broker keeps in memory is lost then; the disk is not.
EXTENDS Integers, Sequences

CONSTANTS
  Count,        \* messages of the producer
  AheadMax,     \* how many of them may be without an answer
  KillsMax,     \* how often the database and the broker are killed, in all
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  sent,         \* messages that the producer has pushed
  waiting,      \* those that wait in the broker for a call, in their order
  calling,      \* the one that a call carries, or 0
  lost,         \* the one whose call was lost, or 0
  known,        \* up to which offset the broker knew the partition when it called
  writing,      \* records on their way to the disk
  is_up,        \* whether the database answers
  log,          \* the partition, committed
  position,     \* in the database: up to where the disk is drained
  disk,         \* records: the message, and up to which offset the partition was known
  draining,     \* what the broker believes is drained; -1 when it must ask
  uncommitted,  \* a drained record that is stored while its position is not noted yet
  answered,     \* messages answered queued or buffered
  kills

push == <<sent, waiting, calling, lost, known, writing>>
store == <<is_up, log, position, disk>>
drain == <<draining, uncommitted>>
vars == <<push, store, drain, answered, kills>>

Unknown == -1
Stored(m) == \E i \in 1..Len(log) : log[i] = m
OnDisk == {disk[i].message : i \in (position + 1)..Len(disk)}
UnderWay == Len(waiting) > 0 \/ calling # 0 \/ lost # 0

Init ==
  /\ sent = 0 /\ waiting = <<>> /\ calling = 0 /\ lost = 0 /\ known = Unknown /\ writing = <<>>
  /\ is_up = TRUE /\ log = <<>> /\ position = 0 /\ disk = <<>>
  /\ draining = 0 /\ uncommitted = FALSE
  /\ answered = {} /\ kills = 0

\* The broker knows of records on disk by the log it opened, whatever the database says.
HasUndrained == Len(disk) > 0 /\ draining # Len(disk)
KeepsOnDisk ==
  \/ HasUndrained
  \/ Len(writing) > 0 /\ Variant # "overlooks what is being written"

\* A push goes to the disk at once only if none of its partition is under way to the database.
Push ==
  LET m == sent + 1
      toDisk ==
        /\ ~is_up \/ KeepsOnDisk
        /\ ~UnderWay \/ Variant = "overtakes on the way to the disk"
  IN
  /\ m <= Count
  /\ Len(waiting) + Len(writing) + (IF calling + lost > 0 THEN 1 ELSE 0) < AheadMax
  /\ sent' = m
  /\ IF toDisk
     THEN writing' = Append(writing, [message |-> m, known |-> Unknown]) /\ UNCHANGED waiting
     ELSE waiting' = Append(waiting, m) /\ UNCHANGED writing
  /\ UNCHANGED <<calling, lost, known, store, drain, answered, kills>>

Call ==
  /\ Len(waiting) > 0 /\ calling = 0 /\ lost = 0 /\ is_up
  /\ ~KeepsOnDisk \/ Variant = "pushes past the disk"
  /\ calling' = Head(waiting)
  /\ waiting' = Tail(waiting)
  /\ known' = Len(log)
  /\ UNCHANGED <<sent, lost, writing, store, drain, answered, kills>>

\* What waits for a call goes to the disk when the call would be made, in its turn.
Divert ==
  /\ Len(waiting) > 0 /\ calling = 0 /\ lost = 0
  /\ ~is_up \/ KeepsOnDisk
  /\ writing' = Append(writing, [message |-> Head(waiting), known |-> Unknown])
  /\ waiting' = Tail(waiting)
  /\ UNCHANGED <<sent, calling, lost, known, store, drain, answered, kills>>

\* push_segments commits; the answer arrives or is lost.
Store ==
  /\ calling # 0 /\ is_up
  /\ log' = Append(log, calling)
  /\ \/ answered' = answered \union {calling} /\ UNCHANGED lost
     \/ lost' = calling /\ UNCHANGED answered
  /\ calling' = 0
  /\ UNCHANGED <<sent, waiting, known, writing, is_up, position, disk, drain, kills>>

\* The call is lost before it did anything. Its session is ended before anything else is done.
LoseCall ==
  /\ calling # 0
  /\ lost' = calling
  /\ calling' = 0
  /\ UNCHANGED <<sent, waiting, known, writing, store, drain, answered, kills>>

\* A push that was lost may be in the log already, above what was known of the partition before it.
SpillLost ==
  /\ lost # 0
  /\ writing' = Append(writing, [
       message |-> lost,
       known |-> IF Variant = "forgets the lost call" THEN Unknown ELSE known])
  /\ lost' = 0
  /\ UNCHANGED <<sent, waiting, calling, known, store, drain, answered, kills>>

\* The record is durable (one fsync) and the push is answered as buffered.
Write ==
  /\ Len(writing) > 0
  /\ disk' = Append(disk, Head(writing))
  /\ writing' = Tail(writing)
  /\ answered' = answered \union {Head(writing).message}
  /\ UNCHANGED <<sent, waiting, calling, lost, known, is_up, log, position, drain, kills>>

IsFound(record) ==
  record.known # Unknown /\ \E i \in (record.known + 1)..Len(log) : log[i] = record.message

\* drain_records: store one record and note it as drained in the same transaction. The call names
\* the position it starts from; if that is not the one on record, nothing is done.
Drain ==
  /\ is_up /\ calling = 0 /\ HasUndrained /\ draining # Unknown
  /\ IF draining # position /\ Variant # "notes the position apart"
     THEN draining' = position /\ UNCHANGED <<log, position, uncommitted>>
     ELSE
       /\ draining < Len(disk)
       /\ LET record == disk[draining + 1] IN
            log' = IF IsFound(record) THEN log ELSE Append(log, record.message)
       /\ IF Variant = "notes the position apart"
          THEN uncommitted' = TRUE /\ UNCHANGED <<position, draining>>
          ELSE /\ position' = position + 1
               /\ UNCHANGED uncommitted
               /\ draining' \in {draining + 1, draining}  \* the answer arrived or was lost
  /\ ~uncommitted
  /\ UNCHANGED <<push, is_up, disk, answered, kills>>

\* Only in the variant that writes the position in a transaction of its own.
NotePosition ==
  /\ uncommitted /\ is_up
  /\ position' = draining + 1
  /\ draining' = draining + 1
  /\ uncommitted' = FALSE
  /\ UNCHANGED <<push, is_up, log, disk, answered, kills>>

AskPosition ==
  /\ is_up /\ draining = Unknown
  /\ draining' = position
  /\ UNCHANGED <<push, store, uncommitted, answered, kills>>

KillDatabase ==
  /\ is_up /\ kills < KillsMax
  /\ is_up' = FALSE
  /\ lost' = IF calling # 0 THEN calling ELSE lost
  /\ calling' = 0
  /\ uncommitted' = FALSE
  /\ kills' = kills + 1
  /\ UNCHANGED <<sent, waiting, known, writing, log, position, disk, draining, answered>>

ReviveDatabase ==
  /\ ~is_up
  /\ is_up' = TRUE
  /\ UNCHANGED <<push, log, position, disk, drain, answered, kills>>

\* The broker is killed: its producer repeats the pushes that had no answer, under the same
\* transaction ids, which the queue's window recognises. Here the next one is sent: what matters is
\* that nothing that was answered is lost or stored twice.
KillBroker ==
  /\ kills < KillsMax
  /\ kills' = kills + 1
  /\ draining' = Unknown
  /\ uncommitted' = FALSE
  /\ waiting' = <<>> /\ calling' = 0 /\ lost' = 0 /\ writing' = <<>>
  /\ UNCHANGED <<sent, known, store, answered>>

Next ==
  \/ Push \/ Call \/ Divert \/ Store \/ LoseCall \/ SpillLost \/ Write
  \/ Drain \/ NotePosition \/ AskPosition
  \/ KillDatabase \/ ReviveDatabase \/ KillBroker

Spec == Init /\ [][Next]_vars

\* An answered message is in the log or on disk, waiting to be drained.
NothingAnsweredIsLost == \A m \in answered : Stored(m) \/ m \in OnDisk

\* Invariant 12: a record is stored in the transaction that notes it as drained.
NothingIsStoredTwice == \A i, j \in 1..Len(log) : log[i] = log[j] => i = j

\* Invariant 12: what is on disk comes first. The partition keeps the producer's order.
WhatIsOnDiskComesFirst == \A i, j \in 1..Len(log) : i < j => log[i] < log[j]
=============================================================================
