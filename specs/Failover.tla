------------------------------ MODULE Failover ------------------------------
\* Keep messages on disk while the database is away, and store them when it is back.
\*
\* One producer pushes messages into one partition and sends the next when the one before is
\* answered. A push goes to the database; it goes to the disk while the database is away or while
\* records of its partition wait there. A push whose call was lost is spilled too, with the offset
\* up to which the partition was known, above which the drain looks for it. Database and broker are
\* killed at any step. What the broker keeps in memory is lost then; the disk is not.
EXTENDS Integers, Sequences

CONSTANTS
  Count,        \* messages of the producer
  KillsMax,     \* how often the database and the broker are killed, in all
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  next,         \* the message that is pushed now
  phase,        \* what the broker does with it: idle, calling, lost
  known,        \* up to which offset it knew the partition when it called
  is_up,        \* whether the database answers
  log,          \* the partition, committed
  position,     \* in the database: up to where the disk is drained
  disk,         \* records: the message, and up to which offset the partition was known
  draining,     \* what the broker believes is drained; -1 when it must ask
  uncommitted,  \* a drained record that is stored while its position is not noted yet
  answered,     \* messages answered queued or buffered
  kills

vars == <<next, phase, known, is_up, log, position, disk, draining, uncommitted, answered, kills>>

Unknown == -1
Stored(m) == \E i \in 1..Len(log) : log[i] = m
Waiting == {disk[i].message : i \in (position + 1)..Len(disk)}

Init ==
  /\ next = 1 /\ phase = "idle" /\ known = Unknown /\ is_up = TRUE
  /\ log = <<>> /\ position = 0 /\ disk = <<>>
  /\ draining = 0 /\ uncommitted = FALSE
  /\ answered = {} /\ kills = 0

\* The broker knows of records on disk by the log it opened, whatever the database says.
HasUndrained == Len(disk) > 0 /\ draining # Len(disk)

Call ==
  /\ phase = "idle" /\ next <= Count /\ is_up
  /\ ~HasUndrained \/ Variant = "pushes past the disk"
  /\ phase' = "calling"
  /\ known' = Len(log)
  /\ UNCHANGED <<next, is_up, log, position, disk, draining, uncommitted, answered, kills>>

\* push_segments commits; the answer arrives or is lost.
Store ==
  /\ phase = "calling" /\ is_up
  /\ log' = Append(log, next)
  /\ \/ /\ phase' = "idle" /\ answered' = answered \union {next} /\ next' = next + 1
     \/ /\ phase' = "lost" /\ UNCHANGED <<answered, next>>
  /\ UNCHANGED <<known, is_up, position, disk, draining, uncommitted, kills>>

\* The call is lost before it did anything. Its session is ended before anything else is done.
LoseCall ==
  /\ phase = "calling"
  /\ phase' = "lost"
  /\ UNCHANGED <<next, known, is_up, log, position, disk, draining, uncommitted, answered, kills>>

\* The record is durable (one fsync) and the push is answered as buffered. A push that was lost
\* may be in the log already, above what was known of the partition before it.
Spill ==
  /\ \/ phase = "idle" /\ (~is_up \/ HasUndrained)
     \/ phase = "lost"
  /\ next <= Count
  /\ disk' = Append(disk, [
       message |-> next,
       known |-> IF phase = "lost" /\ Variant # "forgets the lost call" THEN known ELSE Unknown])
  /\ answered' = answered \union {next}
  /\ next' = next + 1
  /\ phase' = "idle"
  /\ UNCHANGED <<known, is_up, log, position, draining, uncommitted, kills>>

IsFound(record) ==
  record.known # Unknown /\ \E i \in (record.known + 1)..Len(log) : log[i] = record.message

\* drain_records: store one record and note it as drained in the same transaction. The call names
\* the position it starts from; if that is not the one on record, nothing is done.
Drain ==
  /\ is_up /\ phase # "calling" /\ HasUndrained /\ draining # Unknown
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
  /\ UNCHANGED <<next, phase, known, is_up, disk, answered, kills>>

\* Only in the variant that writes the position in a transaction of its own.
NotePosition ==
  /\ uncommitted /\ is_up
  /\ position' = draining + 1
  /\ draining' = draining + 1
  /\ uncommitted' = FALSE
  /\ UNCHANGED <<next, phase, known, is_up, log, disk, answered, kills>>

AskPosition ==
  /\ is_up /\ draining = Unknown
  /\ draining' = position
  /\ UNCHANGED <<next, phase, known, is_up, log, position, disk, uncommitted, answered, kills>>

KillDatabase ==
  /\ is_up /\ kills < KillsMax
  /\ is_up' = FALSE
  /\ phase' = IF phase = "calling" THEN "lost" ELSE phase
  /\ uncommitted' = FALSE
  /\ kills' = kills + 1
  /\ UNCHANGED <<next, known, log, position, disk, draining, answered>>

ReviveDatabase ==
  /\ ~is_up
  /\ is_up' = TRUE
  /\ UNCHANGED <<next, phase, known, log, position, disk, draining, uncommitted, answered, kills>>

\* The broker is killed: its producer repeats the push that had no answer, under the same
\* transaction id, which the queue's window recognises. Here the next one is sent: what matters is
\* that nothing that was answered is lost or stored twice.
KillBroker ==
  /\ kills < KillsMax
  /\ kills' = kills + 1
  /\ draining' = Unknown
  /\ uncommitted' = FALSE
  /\ phase' = "idle"
  /\ next' = IF phase = "idle" THEN next ELSE next + 1
  /\ UNCHANGED <<known, is_up, log, position, disk, answered>>

Next ==
  \/ Call \/ Store \/ LoseCall \/ Spill \/ Drain \/ NotePosition \/ AskPosition
  \/ KillDatabase \/ ReviveDatabase \/ KillBroker

Spec == Init /\ [][Next]_vars

\* An answered message is in the log or on disk, waiting to be drained.
NothingAnsweredIsLost == \A m \in answered : Stored(m) \/ m \in Waiting

\* Invariant 12: a record is stored in the transaction that notes it as drained.
NothingIsStoredTwice == \A i, j \in 1..Len(log) : log[i] = log[j] => i = j

\* Invariant 12: what is on disk comes first. The partition keeps the producer's order.
WhatIsOnDiskComesFirst == \A i, j \in 1..Len(log) : i < j => log[i] < log[j]
=============================================================================
