-------------------------------- MODULE Push --------------------------------
\* Store messages: several brokers push into one partition, each with a cache of the keys it knows.
\*
\* A broker sends with each call up to which offset its cache proves that the key does not occur.
\* The server takes the partition's lock, searches what lies above, allocates an offset and commits;
\* the lock ends with the commit. Connections break at any step. The broker then ends the session
\* of the lost call and repeats the call, which searches above the same offset whatever the window.
\*
\* One message per call, one call per broker and partition at a time, as the engine does.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Brokers,
  Window,       \* whether the queue detects duplicates
  CallsMax,     \* how often one request is sent to the database
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  client,       \* what the broker knows of a request: new, waiting, lost, answered
  outcome,      \* its answer: none, stored, duplicate
  broker,       \* the broker that serves it
  attempt,      \* the number of its newest call
  server,       \* per call: none, called, locked, stored, committed, ended
  proved,       \* per call: the offset up to which the cache proved the key absent
  slot,         \* per call: the offset allocated, or 0
  lock,         \* the call that holds the partition, or NoCall
  head,         \* the partition's last allocated offset
  log,          \* committed messages: offset -> request
  cache,        \* per broker: the keys up to an offset
  read, seen    \* how far a consumer has read, and what it has seen

Requests == {"r1", "r2", "r3"}
KeyOf == [r1 |-> "a", r2 |-> "a", r3 |-> "b"]  \* clients may repeat a transaction id

vars == <<client, outcome, broker, attempt, server, proved, slot, lock, head, log, cache, read, seen>>

Calls == Requests \X (1..CallsMax)
NoCall == <<"none", 0>>
KeyAt(o) == KeyOf[log[o]]
Stored == DOMAIN log
Max(S) == IF S = {} THEN 0 ELSE CHOOSE n \in S : \A m \in S : m <= n

Init ==
  /\ client = [r \in Requests |-> "new"]
  /\ outcome = [r \in Requests |-> "none"]
  /\ broker \in [Requests -> Brokers]
  /\ attempt = [r \in Requests |-> 0]
  /\ server = [c \in Calls |-> "none"]
  /\ proved = [c \in Calls |-> 0]
  /\ slot = [c \in Calls |-> 0]
  /\ lock = NoCall
  /\ head = 0
  /\ log = [o \in {} |-> 0]
  /\ cache = [b \in Brokers |-> [to |-> 0, keys |-> {}]]
  /\ read = 0
  /\ seen = {}

IsBusy(b) == \E r \in Requests : broker[r] = b /\ client[r] \in {"waiting", "lost"}
Newest(r) == <<r, attempt[r]>>
IsRepeat(c) == c[2] > 1

\* The broker sends a request to the database.
Call(r) ==
  /\ client[r] = "new" /\ ~IsBusy(broker[r])
  /\ LET known == cache[broker[r]] IN
       proved' = [proved EXCEPT ![<<r, 1>>] = IF KeyOf[r] \in known.keys THEN 0 ELSE known.to]
  /\ attempt' = [attempt EXCEPT ![r] = 1]
  /\ server' = [server EXCEPT ![<<r, 1>>] = "called"]
  /\ client' = [client EXCEPT ![r] = "waiting"]
  /\ UNCHANGED <<outcome, broker, slot, lock, head, log, cache, read, seen>>

\* push_guaranteed, push_to_poll, push_contested, push_segments: lock the partition.
Lock(c) ==
  /\ server[c] = "called" /\ lock = NoCall
  /\ lock' = c
  /\ server' = [server EXCEPT ![c] = "locked"]
  /\ UNCHANGED <<client, outcome, broker, attempt, proved, slot, head, log, cache, read, seen>>

\* find_duplicates, push_contested: search above what the cache proved, if the partition grew since.
Searched(c) == {o \in Stored : o > proved[c]}
IsDuplicate(c) ==
  /\ Window \/ IsRepeat(c)
  /\ Variant # "trusts the cache" \/ IsRepeat(c)
  /\ \E o \in Searched(c) : KeyAt(o) = KeyOf[c[1]]

\* push_segments, refuse_common: report a duplicate; nothing is stored.
Refuse(c) ==
  /\ server[c] = "locked" /\ IsDuplicate(c)
  /\ lock' = NoCall
  /\ server' = [server EXCEPT ![c] = "committed"]
  /\ UNCHANGED <<client, outcome, broker, attempt, proved, slot, head, log, cache, read, seen>>

\* append_segments: allocate the offset under the lock.
Allocate(c) ==
  /\ server[c] = "locked" /\ ~IsDuplicate(c)
  /\ head' = head + 1
  /\ slot' = [slot EXCEPT ![c] = head + 1]
  /\ server' = [server EXCEPT ![c] = "stored"]
  /\ lock' = IF Variant = "unlocks before the commit" THEN NoCall ELSE lock
  /\ UNCHANGED <<client, outcome, broker, attempt, proved, log, cache, read, seen>>

Commit(c) ==
  /\ server[c] = "stored"
  /\ log' = [o \in Stored \union {slot[c]} |-> IF o = slot[c] THEN c[1] ELSE log[o]]
  /\ lock' = IF lock = c THEN NoCall ELSE lock
  /\ server' = [server EXCEPT ![c] = "committed"]
  /\ UNCHANGED <<client, outcome, broker, attempt, proved, slot, head, cache, read, seen>>

\* The answer reaches the broker, which adds the keys that it did not know to its cache.
Answer(r) ==
  LET c == Newest(r)
      top == Max({o \in Stored : slot[c] = 0 \/ o <= slot[c]})
  IN
  /\ client[r] = "waiting" /\ server[c] = "committed"
  /\ client' = [client EXCEPT ![r] = "answered"]
  /\ outcome' = [outcome EXCEPT ![r] = IF slot[c] > 0 THEN "stored" ELSE "duplicate"]
  /\ cache' = [cache EXCEPT ![broker[r]] =
       [to |-> top, keys |-> {KeyAt(o) : o \in {p \in Stored : p <= top}}]]
  /\ UNCHANGED <<broker, attempt, server, proved, slot, lock, head, log, read, seen>>

\* The connection breaks: the broker does not know what its call did or will do.
Lose(r) ==
  /\ client[r] = "waiting" /\ attempt[r] < CallsMax
  /\ client' = [client EXCEPT ![r] = "lost"]
  /\ UNCHANGED <<outcome, broker, attempt, server, proved, slot, lock, head, log, cache, read, seen>>

\* Before anything is repeated, the session of the lost call is ended: it commits now or never.
EndSession(c) ==
  /\ client[c[1]] = "lost" /\ c = Newest(c[1])
  /\ server[c] \in {"called", "locked", "stored"}
  /\ Variant # "unlocks before the commit" \/ server[c] # "stored"
  /\ server' = [server EXCEPT ![c] = "ended"]
  /\ lock' = IF lock = c THEN NoCall ELSE lock
  /\ head' = IF server[c] = "stored" THEN head - 1 ELSE head
  /\ slot' = [slot EXCEPT ![c] = 0]
  /\ UNCHANGED <<client, outcome, broker, attempt, proved, log, cache, read, seen>>

Repeat(r) ==
  LET c == Newest(r)
      next == <<r, attempt[r] + 1>>
  IN
  /\ client[r] = "lost"
  /\ server[c] \in {"ended", "committed"} \/ Variant = "leaves the lost session alive"
  /\ attempt' = [attempt EXCEPT ![r] = @ + 1]
  /\ server' = [server EXCEPT ![next] = "called"]
  /\ proved' = [proved EXCEPT ![next] = proved[c]]
  /\ client' = [client EXCEPT ![r] = "waiting"]
  /\ UNCHANGED <<outcome, broker, slot, lock, head, log, cache, read, seen>>

\* A consumer reads everything that is visible, and goes on behind it.
Read ==
  /\ Max(Stored) > read
  /\ seen' = seen \union {o \in Stored : o > read}
  /\ read' = Max(Stored)
  /\ UNCHANGED <<client, outcome, broker, attempt, server, proved, slot, lock, head, log, cache>>

Next ==
  \/ \E r \in Requests : Call(r) \/ Answer(r) \/ Lose(r) \/ Repeat(r)
  \/ \E c \in Calls : Lock(c) \/ Refuse(c) \/ Allocate(c) \/ Commit(c) \/ EndSession(c)
  \/ Read

Spec == Init /\ [][Next]_vars

\* Invariant 1: offset order is commit order. A reader never passes a message that appears later.
OffsetOrderIsCommitOrder == \A o \in Stored : o <= read => o \in seen

\* Invariant 6: duplicates are decided under the partition's lock.
DuplicatesAreDecidedUnderTheLock ==
  Window => \A o, p \in Stored : KeyAt(o) = KeyAt(p) => o = p

\* Invariant 9: unknown outcomes are resolved. No request is stored twice, whatever the window.
UnknownOutcomesAreResolved == \A o, p \in Stored : log[o] = log[p] => o = p

\* An item answered as stored is committed, one answered as a duplicate has its key in the log.
AnsweredIsStored ==
  \A r \in Requests :
    /\ outcome[r] = "stored" => \E o \in Stored : log[o] = r
    /\ outcome[r] = "duplicate" => \E o \in Stored : KeyAt(o) = KeyOf[r]

\* The cache may only prove that a key is absent: what it calls absent up to an offset is absent.
TheCacheProvesAbsence ==
  \A b \in Brokers : \A o \in Stored : o <= cache[b].to => KeyAt(o) \in cache[b].keys
=============================================================================
