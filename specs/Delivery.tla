------------------------------ MODULE Delivery ------------------------------
\* Deliver and acknowledge: one consumer group reads one partition.
\*
\* Consumers take the lowest unfinished messages under a lease and answer some or all of them in one
\* call, completed or failed. A lease may end at any time; its holder does not notice, works on and
\* answers later (a zombie). A message that failed too often becomes a dead letter. With individual
\* acks messages are finished ahead of the cursor; with cumulative ones a completed message
\* completes all before it, up to the lowest that failed in the same call.
EXTENDS Naturals, FiniteSets

CONSTANTS
  Consumers,
  Head,         \* messages in the partition
  BatchMax,     \* messages of one delivery
  LeasesMax,    \* deliveries in all
  RetryLimit,   \* failures after which a message is given up, less one
  Individual,   \* whether an ack speaks only for its own message
  Variant       \* "sound", or the mistake that is made on purpose

VARIABLES
  acked,        \* the cursor: everything up to here is finished
  done,         \* finished ahead of the cursor
  nacked,       \* failed under the current lease, to be delivered again
  leased,       \* the end of the leased range, 0 without a lease
  lease,        \* number of the newest lease
  expired,      \* whether its time is over
  failures,     \* per message
  held,         \* per consumer: the lease and the messages it believes to hold
  fate          \* what really became of a message: open, completed, failed, dead

vars == <<acked, done, nacked, leased, lease, expired, failures, held, fate>>

Messages == 1..Head
Max(S) == CHOOSE n \in S : \A m \in S : m <= n
Min(S) == CHOOSE n \in S : \A m \in S : n <= m
Nothing == [lease |-> 0, messages |-> {}]

Init ==
  /\ acked = 0 /\ done = {} /\ nacked = {}
  /\ leased = 0 /\ lease = 0 /\ expired = FALSE
  /\ failures = [m \in Messages |-> 0]
  /\ held = [c \in Consumers |-> Nothing]
  /\ fate = [m \in Messages |-> "open"]

\* pass_done: the cursor moves past what is finished behind it.
Passed(a, d) == Max({n \in a..Head : \A m \in (a + 1)..n : m \in d})
Ahead(a, d) == {m \in d : m > Passed(a, d)}

\* pop_messages, pop_partitions, take_partitions, hand_over, push_to_poll: the lowest unfinished
\* messages go under a new lease.
Claim(c) ==
  /\ leased = 0 \/ expired
  /\ acked < Head /\ lease < LeasesMax
  /\ \E n \in 1..BatchMax :
       LET unfinished == {m \in Messages : m > acked /\ m \notin done}
           taken == {m \in unfinished : Cardinality({l \in unfinished : l <= m}) <= n}
       IN
       /\ leased' = Max(taken)
       /\ held' = [held EXCEPT ![c] = [lease |-> lease + 1, messages |-> taken]]
  /\ lease' = lease + 1
  /\ expired' = FALSE
  /\ nacked' = {}
  /\ UNCHANGED <<acked, done, failures, fate>>

\* The time of a lease is over, or end_leases ended it; only the database knows.
Expire ==
  /\ leased > 0 /\ ~expired
  /\ expired' = TRUE
  /\ UNCHANGED <<acked, done, nacked, leased, lease, failures, held, fate>>

IsFenced(c) == held[c].lease = lease /\ leased > 0 /\ ~expired

GivenUp(F) == {m \in F : failures[m] + 1 > RetryLimit}
Retried(F) == F \ GivenUp(F)

\* ack_messages, complete_lease, complete_leases, ack_partition, move_cursor: C completed and F
\* failed in one call.
\* The lowest failure that is retried stops cumulative acks; what is given up is passed as if
\* completed.
Ack(c, C, F) ==
  LET a == held[c].messages
      live == {m \in C \union F : m > acked /\ m \notin done}
      stop == IF Retried(F \intersect live) = {} THEN Head + 1 ELSE Min(Retried(F \intersect live))
      below == IF Variant = "passes a failed message" THEN live \ F ELSE {m \in live : m < stop}
      upto == IF Individual \/ below = {} THEN acked ELSE Max(below)
      finished == IF Individual
                  THEN done \union (live \ Retried(F))
                  ELSE done
      new_acked == Passed(upto, finished)
      new_done == Ahead(upto, finished)
      answered_retry == IF Individual THEN Retried(F \intersect live)
                        ELSE Retried(F \intersect live) \intersect {stop}
      all_nacked == nacked \union answered_retry
      ends == \/ ~Individual /\ answered_retry # {}
              \/ new_acked >= leased
              \/ \A m \in (new_acked + 1)..leased : m \in new_done \/ m \in all_nacked
      failed_now == IF Individual THEN (F \intersect live) \ nacked
                    ELSE {m \in F \intersect live : m <= stop}
  IN
  /\ C \union F # {} /\ C \union F \subseteq a /\ C \intersect F = {}
  /\ held' = [held EXCEPT ![c] =
       IF @.messages = C \union F THEN Nothing ELSE [@ EXCEPT !.messages = @ \ (C \union F)]]
  /\ IF ~IsFenced(c) /\ Variant # "accepts acks of lost leases"
     THEN UNCHANGED <<acked, done, nacked, leased, expired, failures, fate>>  \* lease_lost
     ELSE
       /\ acked' = new_acked
       /\ done' = new_done
       /\ leased' = IF ends THEN 0 ELSE leased
       /\ nacked' = IF ends THEN {} ELSE all_nacked
       /\ expired' = (expired /\ ~ends)
       /\ failures' = [m \in Messages |-> failures[m] + (IF m \in failed_now THEN 1 ELSE 0)]
       /\ fate' = [m \in Messages |->
            IF m \in failed_now \intersect GivenUp(F) THEN "dead"
            ELSE IF m \in failed_now THEN "failed"
            ELSE IF m \in C /\ (Individual \/ m <= upto) THEN "completed"
            ELSE IF ~Individual /\ m > acked /\ m <= upto /\ m \notin F
                    /\ (fate[m] = "open" \/ m \in a)
                 THEN "completed"  \* by one above it
            ELSE fate[m]]
  /\ UNCHANGED lease

Answer(c) == \E C, F \in SUBSET held[c].messages : Ack(c, C, F)

\* release_claims, undo_claims: a delivery that never reached its consumer is taken back.
Release(c) ==
  /\ IsFenced(c) /\ nacked = {}
  /\ leased' = 0
  /\ expired' = FALSE
  /\ held' = [held EXCEPT ![c] = Nothing]
  /\ UNCHANGED <<acked, done, nacked, lease, failures, fate>>

Next ==
  \/ Expire
  \/ \E c \in Consumers : Claim(c) \/ Answer(c) \/ Release(c)

Spec == Init /\ [][Next]_vars

\* Invariant 5: the cursor never passes a failed message. What lies behind it was completed by the
\* holder of its lease, or is a dead letter.
CursorNeverPassesAFailedMessage ==
  \A m \in Messages : m <= acked \/ m \in done => fate[m] \in {"completed", "dead"}

\* Invariant 5: the first message of a ready partition is deliverable.
DoneNeverHoldsTheNext == acked + 1 \notin done /\ \A m \in done : m > acked

\* A lease covers something to deliver, and nothing that is finished comes again.
ALeaseCoversUnfinishedMessages ==
  leased > 0 => /\ leased > acked
                /\ \E m \in (acked + 1)..leased : m \notin done

\* A dead letter has used up its own retries, not those of its neighbours.
RetriesArePerMessage ==
  \A m \in Messages : fate[m] = "dead" => failures[m] = RetryLimit + 1

\* Invariant 5: the cursor never moves back.
CursorNeverMovesBack == [][acked' >= acked]_vars
=============================================================================
