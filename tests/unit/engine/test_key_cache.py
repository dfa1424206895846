"""What the key cache guarantees, it finds; and it stays within its memory."""

import gc
import resource
import tempfile
import tracemalloc
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skep.engine.key_cache.cache import KeyCache
from skep.engine.key_cache.filter import mix
from skep.engine.key_cache.table import ALWAYS

MOMENT = timedelta(microseconds=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MIB = 1 << 20

SMALL_BYTES = 20_000
SMALL_RUN_KEYS = 4
"""With these a cache keeps some 30 keys in runs of four, and seven spans."""
GROWN_BYTES = 400_000
"""With so many, runs of 16, 64 and more."""


def key(name):
    return blake2b(str(name).encode(), digest_size=16).digest()


def keys(names):
    return b"".join(key(name) for name in names)


def small_cache(**options):
    return KeyCache(memory_bytes_max=SMALL_BYTES, run_keys=SMALL_RUN_KEYS, **options)


def fill(cache, key_count, *, partition_id=1, start=NOON, lot_keys=2):
    """Record writes of new keys a second apart; return [(first, keys, created_at)]."""
    known = cache.guarantee(partition_id)
    first = known[0] + 1 if known else 1
    segments = []
    for number in range(0, key_count, lot_keys):
        names = [(partition_id, first + n) for n in range(min(lot_keys, key_count - number))]
        created_at = start + timedelta(seconds=number)
        segments.append((first, keys(names), created_at))
        cache.record(partition_id, *segments[-1])
        first += len(names)
    return segments


def lost_keys(cache, segments, *, partition_id=1):
    """Return the offsets inside the guaranteed span that are not found where they are."""
    to, since = cache.guarantee(partition_id)
    lost = []
    for first, joined, created_at in segments:
        if created_at >= since:
            expected = range(first, min(first + len(joined) // 16 - 1, to) + 1)
            found = {offset for _, _, offset in cache.find([(partition_id, joined)])}
            lost += [offset for offset in expected if offset not in found]
    return lost


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=30),
    gaps=st.lists(st.integers(0, 2), min_size=30, max_size=30),
)
def test_a_flush_recorded_at_once_is_known_like_one_recorded_segment_by_segment(sizes, gaps):
    one_by_one, at_once = (KeyCache(memory_bytes_max=MIB, run_keys=16) for _ in range(2))
    segments = [
        (partition_id, 1 + gap, keys((partition_id, n) for n in range(size)), NOON)
        for partition_id, (size, gap) in enumerate(zip(sizes, gaps, strict=False), start=1)
    ]

    for segment in segments:
        one_by_one.record(*segment)
    at_once.record_flush(segments)

    writes = [(partition_id, joined) for partition_id, _, joined, _ in segments]
    assert at_once.find(writes) == one_by_one.find(writes)
    assert [at_once.guarantee(p) for p, _ in writes] == [one_by_one.guarantee(p) for p, _ in writes]


class TestSpans:
    def test_nothing_is_guaranteed_in_a_partition_never_heard_of(self):
        assert small_cache().guarantee(1) is None

    def test_a_partition_begun_is_guaranteed_for_as_told(self):
        cache = small_cache()

        cache.begin(1, head=41, since=NOON)

        assert cache.guarantee(1) == (41, NOON)

    def test_the_next_segment_extends_the_span(self):
        cache = small_cache()
        cache.begin(1, head=41, since=NOON)

        cache.record(1, 42, keys("abc"), NOON + MOMENT)
        cache.adopt(1, 45, keys("de"), NOON + MOMENT)

        assert cache.guarantee(1) == (46, NOON)

    def test_after_a_gap_only_what_is_created_later_than_the_segment_is_guaranteed_for(self):
        cache = small_cache()
        cache.begin(1, head=41, since=NOON - timedelta(hours=1))

        cache.record(1, 43, keys("a"), NOON)

        # The segment at offset 42 may have been created at noon as well.
        assert cache.guarantee(1) == (43, NOON + MOMENT)

    def test_a_segment_of_an_unknown_partition_is_like_one_after_a_gap(self):
        cache = small_cache()

        cache.adopt(1, 7, keys("ab"), NOON)

        assert cache.guarantee(1) == (8, NOON + MOMENT)

    def test_before_the_first_offset_there_is_nothing_to_know(self):
        cache = small_cache()

        cache.record(1, 1, keys("ab"), NOON)

        assert cache.guarantee(1) == (2, ALWAYS)

    def test_a_segment_inside_the_span_leaves_it_as_it_is(self):
        cache = small_cache()
        cache.begin(1, head=41, since=NOON)

        cache.adopt(1, 30, keys("ab"), NOON)

        assert cache.guarantee(1) == (41, NOON)

    def test_a_segment_that_begins_inside_the_span_extends_it(self):
        cache = small_cache()
        cache.begin(1, head=41, since=NOON)

        cache.adopt(1, 41, keys("abc"), NOON)

        assert cache.guarantee(1) == (43, NOON)

    def test_a_forgotten_partition_is_guaranteed_for_no_more(self):
        cache = small_cache()
        cache.begin(1, head=41, since=NOON)

        cache.forget(1)

        assert cache.guarantee(1) is None

    def test_forgetting_an_unknown_partition_is_no_error(self):
        small_cache().forget(1)

    def test_the_span_not_extended_for_longest_gives_way(self):
        cache = small_cache()
        for partition_id in range(1, 8):
            cache.begin(partition_id, head=0, since=NOON)

        cache.record(1, 1, keys("a"), NOON)
        cache.begin(8, head=0, since=NOON)

        assert cache.guarantee(1) == (1, NOON)
        assert cache.guarantee(2) is None


class TestFind:
    def test_a_hit_tells_write_key_and_offset(self):
        cache = small_cache()
        cache.record(7, 10, keys("abc"), NOON)
        cache.record(9, 20, keys("de"), NOON)

        hits = cache.find([(7, keys("xb")), (8, keys("y")), (9, keys("ed"))])

        assert hits == [(0, 1, 11), (2, 0, 21), (2, 1, 20)]

    @pytest.mark.parametrize("name_count", [1, 6, 7, 500])
    def test_a_flush_of_any_size_is_searched_completely(self, name_count):
        cache = KeyCache(memory_bytes_max=MIB)
        names = range(name_count)
        for number in names:
            cache.record(number, 5, keys([number]), NOON)

        hits = cache.find([(number, keys([number, "new"])) for number in names])

        assert hits == [(number, 0, 5) for number in names]

    def test_nothing_is_found_in_no_writes(self):
        assert small_cache().find([]) == []

    def test_an_empty_batch_does_not_shift_the_others(self):
        cache = small_cache()
        cache.record(1, 1, keys(range(20)), NOON)

        hits = cache.find([(1, b""), (1, keys([*range(7), "new", 8])), (1, b"")])

        assert hits == [(1, n, n + 1) for n in (*range(7), 8)]

    def test_the_same_key_in_another_partition_is_another_key(self):
        cache = small_cache()
        cache.record(1, 1, keys(range(30)), NOON)

        assert cache.find([(2, keys(range(30)))]) == []

    @pytest.mark.parametrize("run_keys", [16, 400], ids=["small runs", "large runs"])
    @pytest.mark.parametrize(
        ("between", "after"), [(0, 0), (130, 0), (130, 130)], ids=["young", "one poured", "poured"]
    )
    @pytest.mark.parametrize("offsets", [(100, 200), (200, 100)], ids=["in order", "newest first"])
    def test_of_a_key_stored_twice_the_newest_offset_is_found(
        self, offsets, between, after, run_keys
    ):
        cache = KeyCache(memory_bytes_max=256 << 10, run_keys=run_keys)
        cache.begin(1, head=500, since=NOON)

        cache.adopt(1, offsets[0], key("twice"), NOON)
        cache.adopt(1, 300, keys(("between", n) for n in range(between)), NOON)
        cache.adopt(1, offsets[1], key("twice"), NOON)
        cache.adopt(1, 300, keys(("after", n) for n in range(after)), NOON)

        assert cache.find([(1, key("twice"))]) == [(0, 0, 200)]
        assert cache.find([(1, key("twice") + keys(range(10)))]) == [(0, 0, 200)]

    def test_a_batch_larger_than_the_young_generation_is_taken_in_whole(self):
        cache = KeyCache(memory_bytes_max=MIB)
        joined = keys(range(5_000))

        cache.record(1, 1, joined, NOON)

        assert cache.find([(1, joined)]) == [(0, n, n + 1) for n in range(5_000)]

    def test_the_last_partition_id_and_offset_of_an_address_fit(self):
        cache = small_cache()
        partition_id, offset = 2**60 - 1, 2**62 - 1

        cache.record(partition_id, offset, key("a"), NOON)
        cache.adopt(1, 1, keys(range(20)), NOON)

        assert cache.find([(partition_id, key("a"))]) == [(0, 0, offset)]
        assert cache.find([(partition_id, key("a") + keys(range(9)))]) == [(0, 0, offset)]


class TestForgetting:
    def test_keys_dropped_for_room_are_taken_out_of_the_spans_first(self):
        cache = small_cache()

        segments = fill(cache, 200)

        to, since = cache.guarantee(1)
        dropped = [created_at for first, joined, created_at in segments if created_at < since]
        assert to == 200
        assert since == cache.horizon > dropped[-1]
        assert len(dropped) <= len(segments) - 10, "the youngest are still guaranteed"
        assert lost_keys(cache, segments) == []

    def test_the_horizon_lies_just_behind_the_newest_key_dropped(self):
        cache = small_cache()

        segments = fill(cache, 200)

        assert cache.horizon - MOMENT in [created_at for _, _, created_at in segments]

    def test_the_horizon_leaves_a_younger_span_alone(self):
        cache = small_cache()
        fill(cache, 200)

        cache.begin(2, head=5, since=cache.horizon + MOMENT)

        assert cache.guarantee(2) == (5, cache.horizon + MOMENT)

    def test_keys_older_than_the_horizon_do_not_push_out_younger_ones(self):
        cache = small_cache()
        fill(cache, 200)
        horizon = cache.horizon

        cache.begin(2, head=0, since=ALWAYS)
        cache.adopt(2, 1, keys(range(100)), horizon - MOMENT)

        assert cache.horizon == horizon
        assert cache.guarantee(2) == (100, horizon)

    def test_keys_created_at_the_horizon_are_kept(self):
        cache = small_cache()
        fill(cache, 200)

        cache.adopt(2, 1, key("a"), cache.horizon)

        assert cache.find([(2, key("a"))]) == [(0, 0, 1)]

    def test_the_filter_does_not_clog_however_many_runs_come_and_go(self):
        cache = small_cache()

        fill(cache, 4_000, lot_keys=10)

        strangers = np.random.default_rng(1).integers(0, 2**63, 1_000, dtype=np.uint64)
        passed = np.count_nonzero(cache._runs._shelves[-1].filter.words_of(mix(strangers)))
        assert passed < 50, "a filter never wiped lets all of them pass"


class TestGrowing:
    """A cache whose keys are needed takes more memory before it forgets."""

    @staticmethod
    def growing_cache(needed_since=lambda: ALWAYS, **options):
        return KeyCache(
            memory_bytes_max=GROWN_BYTES,
            first_bytes=SMALL_BYTES,
            run_keys=SMALL_RUN_KEYS,
            needed_since=needed_since,
            **options,
        )

    def test_keys_that_are_needed_are_kept_beyond_what_the_cache_starts_with(self, tmp_path):
        cache = self.growing_cache(spill_dir=tmp_path)
        small_bytes = cache.memory_bytes

        segments = fill(cache, 1_500)

        assert cache.horizon == ALWAYS
        assert lost_keys(cache, segments) == []
        assert small_bytes < cache.memory_bytes <= GROWN_BYTES
        assert cache.key_count == 1_500

    def test_keys_that_are_not_needed_make_room_for_new_ones(self, tmp_path):
        clock = [NOON]
        cache = self.growing_cache(lambda: clock[0] - timedelta(seconds=10), spill_dir=tmp_path)

        for _ in range(200):
            fill(cache, 2, start=clock[0])
            clock[0] += timedelta(seconds=5)

        assert cache.memory_bytes <= SMALL_BYTES
        assert cache.guarantee(1)[1] < clock[0] - timedelta(seconds=10)

    def test_an_outgrown_shelf_goes_when_its_keys_are_not_needed(self, tmp_path):
        clock = [NOON]
        cache = self.growing_cache(lambda: clock[0], spill_dir=tmp_path)
        clock[0] = ALWAYS
        segments = fill(cache, 600)
        shelves = len(cache._runs._shelves)

        clock[0] = segments[-1][2]
        fill(cache, 300, start=clock[0])

        assert shelves > 1
        assert len(cache._runs._shelves) == 1
        assert cache.guarantee(1)[1] <= clock[0] + MOMENT

    def test_when_the_memory_is_used_up_the_oldest_keys_are_forgotten(self, tmp_path):
        cache = self.growing_cache(spill_dir=tmp_path)

        segments = fill(cache, 80_000, lot_keys=50)

        assert cache.horizon > NOON
        assert cache.memory_bytes <= GROWN_BYTES
        assert lost_keys(cache, segments) == []

    def test_the_account_of_a_grown_cache_holds(self, tmp_path):
        joined = keys(range(20))
        self.test_when_the_memory_is_used_up_the_oldest_keys_are_forgotten(tmp_path)

        check_account(
            joined,
            GROWN_BYTES,
            run_keys=SMALL_RUN_KEYS,
            first_bytes=SMALL_BYTES,
            spill_dir=tmp_path,
        )


def extend_by_one(cache, partition_id, *, known):
    return cache.extend(partition_id, [1], [1], key("a"), NOON, known=known, since=ALWAYS)


class TestExtending:
    """A span learns what was stored before it."""

    def test_what_was_stored_before_the_span_is_guaranteed_and_found(self):
        cache = KeyCache(memory_bytes_max=MIB)
        later = NOON + timedelta(minutes=1)
        cache.begin(1, head=6_010, since=later)
        older = keys([*range(6_000), *"ab"])

        assert cache.extend(
            1, [1, 6_003], [6_000, 2], older, NOON + MOMENT, known=later, since=NOON
        )

        assert cache.guarantee(1) == (6_010, NOON)
        assert cache.find([(1, keys("ab"))]) == [(0, 0, 6_003), (0, 1, 6_004)]
        assert cache.find([(1, keys(range(6_000)))])[-1] == (0, 5_999, 6_000)

    def test_a_span_that_begins_elsewhere_by_now_stays_as_it_is(self):
        cache = small_cache()
        cache.begin(1, head=5, since=NOON)

        assert not extend_by_one(cache, 1, known=NOON + MOMENT)

        assert cache.guarantee(1) == (5, NOON)

    def test_a_partition_without_a_span_gets_none(self):
        cache = small_cache()

        assert not extend_by_one(cache, 1, known=NOON)

        assert cache.guarantee(1) is None

    def test_a_span_does_not_reach_back_beyond_what_was_forgotten(self):
        cache = small_cache()
        fill(cache, 200)
        later = cache.horizon + MOMENT
        cache.begin(2, head=1, since=later)

        assert not extend_by_one(cache, 2, known=later)

        assert cache.guarantee(2) == (1, cache.horizon)


@contextmanager
def traced_memory():
    """Give a function that tells the bytes allocated since."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def count_memory(joined, bound, **how):
    """Fill a cache until it gives things up; return the most that was allocated beyond its account,
    and the most that was accounted beyond its bound."""
    with traced_memory() as taken:
        cache = KeyCache(memory_bytes_max=bound, **how)
        unaccounted = above_bound = -bound
        drops, horizon = 0, cache.horizon
        for partition_id in count(1):
            created_at = NOON + timedelta(seconds=partition_id)
            cache.adopt(partition_id, 5, joined, created_at)
            unaccounted = max(unaccounted, taken() - cache.memory_bytes)
            above_bound = max(above_bound, cache.memory_bytes - bound)
            drops += cache.horizon > horizon
            horizon = cache.horizon
            if drops > 10 and cache.guarantee(11) is None:
                break
    return unaccounted, above_bound


def check_account(joined, bound, **how):
    """Find nothing allocated beyond the account, in one count of three: other threads of this
    process allocate as well, now and then."""
    for _ in range(3):
        unaccounted, above_bound = count_memory(joined, bound, **how)
        assert above_bound <= 0
        if unaccounted <= 0:
            return
    assert unaccounted <= 0


class TestMemory:
    @pytest.mark.parametrize("is_spilling", [False, True], ids=["in memory", "spilling"])
    @pytest.mark.parametrize(
        ("bound", "run_keys", "lot_keys"),
        [(SMALL_BYTES, SMALL_RUN_KEYS, 3), (256 << 10, None, 100)],
        ids=["small runs", "planned runs"],
    )
    def test_what_is_really_allocated_stays_below_the_account_and_that_below_the_bound(
        self, tmp_path, bound, run_keys, lot_keys, is_spilling
    ):
        spill_dir = tmp_path if is_spilling else None
        joined = keys(range(lot_keys))
        fill(small_cache(spill_dir=tmp_path), 40)  # what modules allocate once is not the cache's

        check_account(joined, bound, run_keys=run_keys, spill_dir=spill_dir)

    def test_a_spill_directory_multiplies_what_is_kept(self, tmp_path):
        joined = keys(range(1_000))
        kept = []
        for spill_dir in (None, tmp_path):
            cache = KeyCache(memory_bytes_max=MIB, spill_dir=spill_dir)
            for number in range(200):
                cache.adopt(number, 1, joined, NOON)
            kept.append(len(cache.find([(number, joined) for number in range(200)])))

        assert kept[1] > 5 * kept[0] > 0

    @pytest.mark.parametrize("run_keys", [None, 100])
    @pytest.mark.parametrize("is_spilling", [False, True])
    def test_a_bound_too_small_to_be_of_use_is_refused(self, tmp_path, run_keys, is_spilling):
        with pytest.raises(ValueError, match="too few"):
            KeyCache(
                memory_bytes_max=10_000,
                run_keys=run_keys,
                spill_dir=tmp_path if is_spilling else None,
            )


@contextmanager
def no_file_may_grow():
    """Refuse writes to files as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestSpilling:
    def test_keys_on_disk_are_found(self, tmp_path):
        cache = small_cache(spill_dir=tmp_path)

        segments = fill(cache, 30)

        assert cache.horizon == ALWAYS
        assert lost_keys(cache, segments) == []
        assert cache.disk_bytes > 0

    def test_no_file_outlives_the_process(self, tmp_path):
        cache = small_cache(spill_dir=tmp_path)

        fill(cache, 40)

        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk_costs_the_runs_not_the_push(self, tmp_path):
        cache = small_cache(spill_dir=tmp_path)
        segments = fill(cache, 40)

        with no_file_may_grow():
            segments += fill(cache, 40, start=NOON + timedelta(minutes=1))

        assert cache.horizon > NOON
        assert lost_keys(cache, segments) == []

    def test_spilling_resumes_when_the_disk_has_room_again(self, tmp_path):
        cache = small_cache(spill_dir=tmp_path)
        with no_file_may_grow():
            fill(cache, 40)
        horizon = cache.horizon

        segments = fill(cache, 24, start=NOON + timedelta(minutes=1))

        assert cache.horizon == horizon
        assert lost_keys(cache, segments) == []

    def test_a_spill_directory_that_is_not_there_is_like_a_full_disk(self, tmp_path):
        cache = small_cache(spill_dir=tmp_path / "absent")

        segments = fill(cache, 40)

        assert cache.horizon > NOON
        assert lost_keys(cache, segments) == []


class CacheBesideDatabase(RuleBasedStateMachine):
    """The cache of one broker beside a database into which others push, too."""

    PARTITIONS = st.integers(1, 9)
    NAMES = st.builds(
        lambda start, count: [n % 60 for n in range(start, start + count)],
        st.integers(0, 59),
        st.integers(1, 20),
    )

    @initialize(
        is_spilling=st.booleans(),
        run_keys=st.sampled_from([SMALL_RUN_KEYS, 20]),
        bound=st.sampled_from([SMALL_BYTES, GROWN_BYTES]),
    )
    def start(self, is_spilling, run_keys, bound):
        self.folder = tempfile.TemporaryDirectory()
        self.bound = bound
        self.cache = KeyCache(
            memory_bytes_max=bound,
            first_bytes=SMALL_BYTES,
            needed_since=lambda: self.now - timedelta(seconds=100),
            run_keys=run_keys,  # filled by a part of a pour, or by several
            spill_dir=Path(self.folder.name) if is_spilling else None,
        )
        self.now = NOON
        # What is stored: for every partition the segments, (first, names, created_at).
        self.log = {partition_id: [] for partition_id in range(1, 10)}

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def head(self, partition_id):
        segments = self.log[partition_id]
        return segments[-1][0] + len(segments[-1][1]) - 1 if segments else 0

    def store(self, partition_id, names):
        segment = (self.head(partition_id) + 1, names, self.now)
        self.log[partition_id].append(segment)
        return segment

    def adopt(self, partition_id, segments):
        for first, names, created_at in segments:
            self.cache.adopt(partition_id, first, keys(names), created_at)

    @rule(time=st.sampled_from([MOMENT, timedelta(seconds=1), timedelta(seconds=100)]))
    def let_time_pass(self, time):
        self.now += time

    @rule(partition_id=PARTITIONS, names=NAMES)
    def push_here(self, partition_id, names):
        first, _, created_at = self.store(partition_id, names)
        self.cache.record(partition_id, first, keys(names), created_at)

    @rule(partition_id=PARTITIONS, names=NAMES)
    def push_elsewhere(self, partition_id, names):
        self.store(partition_id, names)

    @rule(partition_id=PARTITIONS)
    def learn_what_others_pushed(self, partition_id):
        to = (self.cache.guarantee(partition_id) or (0, None))[0]
        gap = [segment for segment in self.log[partition_id] if segment[0] > to]
        if gap:
            joined = keys(name for _, names, _ in gap for name in names)
            self.cache.adopt(partition_id, gap[0][0], joined, gap[-1][2])

    @rule(partition_id=PARTITIONS, data=st.data())
    def learn_any_segment(self, partition_id, data):
        if segments := self.log[partition_id]:
            self.adopt(partition_id, [data.draw(st.sampled_from(segments))])

    @rule(partition_id=PARTITIONS, age_s=st.integers(0, 200), order=st.sampled_from([1, -1]))
    def begin(self, partition_id, age_s, order):
        since = self.now - timedelta(seconds=age_s)
        known = [segment for segment in self.log[partition_id] if segment[2] >= since]
        self.cache.begin(partition_id, head=self.head(partition_id), since=since)
        self.adopt(partition_id, known[::order])

    @rule(partition_id=PARTITIONS, age_s=st.integers(0, 200))
    def learn_what_was_stored_before(self, partition_id, age_s):
        if span := self.cache.guarantee(partition_id):
            since = self.now - timedelta(seconds=age_s)
            older = [each for each in self.log[partition_id] if since <= each[2] < span[1]]
            if since < span[1]:
                self.cache.extend(
                    partition_id,
                    [first for first, _, _ in older],
                    [len(names) for _, names, _ in older],
                    keys(name for _, names, _ in older for name in names),
                    max([created_at for _, _, created_at in older], default=ALWAYS),
                    known=span[1],
                    since=since,
                )

    @rule(partition_id=PARTITIONS)
    def forget(self, partition_id):
        self.cache.forget(partition_id)

    @precondition(lambda self: hasattr(self, "cache"))
    @invariant()
    def whatever_is_guaranteed_is_found(self):
        writes, expected = [], []
        for partition_id, segments in self.log.items():
            to, since = self.cache.guarantee(partition_id) or (0, ALWAYS)
            assert to <= self.head(partition_id)
            newest = {}
            for first, names, created_at in segments:
                if created_at >= since:
                    span = zip(names, range(first, to + 1), strict=False)
                    newest.update(span)
            writes.append((partition_id, keys(newest)))
            expected.append(newest)

        together = self.cache.find(writes)
        apart = [
            (write, n, offset)
            for write, (partition_id, joined) in enumerate(writes)
            for n in range(len(joined) // 16)
            for _, _, offset in self.cache.find([(partition_id, joined[n * 16 : n * 16 + 16])])
        ]

        assert together == apart
        assert [(write, n) for write, n, _ in together] == [
            (write, n) for write, newest in enumerate(expected) for n in range(len(newest))
        ]
        for write, n, offset in together:
            name = list(expected[write])[n]
            assert offset >= expected[write][name]
            assert self.name_at(writes[write][0], offset) == name

    @precondition(lambda self: hasattr(self, "cache"))
    @invariant()
    def memory_stays_below_the_bound(self):
        assert self.cache.memory_bytes <= self.bound

    def name_at(self, partition_id, offset):
        for first, names, _ in self.log[partition_id]:
            if first <= offset < first + len(names):
                return names[offset - first]
        return None


CacheBesideDatabase.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestCacheBesideDatabase = CacheBesideDatabase.TestCase
