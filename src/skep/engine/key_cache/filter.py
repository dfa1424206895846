"""Tell which of up to 64 runs may hold a fingerprint, at the price of one.

A Bloom filter for each run, all of the same size and laid across each other: bit `c` of a word
belongs to the run in column `c`. The words of a fingerprint, and-ed, have a bit left for every run
that may hold it. A run that holds it always has its bit; a run that does not, one time in 1,060.

A column is taken clean, released dirty, and wiped before it can be taken again. Clearing the words
of a new filter and wiping pass over all of them, so both are done in parts; the caller says how far
the passage has come.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

COLUMNS_MAX: Final = 64

# When 64 runs are full, 6% of new keys cost a look into one of them (0.7 us). Fewer probes gather
# little quicker and let far more pass; more probes make filling dearer than they save.
WORDS_PER_KEY: Final = 16
_PROBES: Final = 6
_PROBE_NUMBERS: Final = np.arange(_PROBES, dtype=np.uint64)[:, None]

WORD_BYTES: Final = 8

_LOW: Final = 0xFFFF_FFFF
_LOW_HALF: Final = np.uint64(_LOW)
_HALF: Final = np.uint64(32)
_ODD: Final = np.uint64(1)


def mix(fingerprints: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return what filters of any size are probed by: one row per probe.

    Along the fingerprints numpy is three times as quick.
    """
    mixed = (fingerprints >> _HALF | _ODD) * _PROBE_NUMBERS
    mixed += fingerprints
    mixed &= _LOW_HALF
    return mixed


class RunFilter:
    """The words and the columns. All words are to be cleared before use.

    Args:
        run_keys: Fingerprints that are added to one column at most.
        columns: Runs there can be at a time, those being wiped included.
    """

    def __init__(self, run_keys: int, columns: int) -> None:
        self.word_count: Final = run_keys * WORDS_PER_KEY
        # Not np.zeros: its pages would all be faulted in by the first additions, which are random.
        self._words: Final = np.empty(self.word_count, np.uint64)
        self._word_view: Final = self._words.data
        self._clean = (1 << columns) - 1
        self._dirty = 0
        self._wiping = 0

    @property
    def memory_bytes(self) -> int:
        """Memory of the words, which does not change."""
        return self._words.nbytes

    def clear(self, words: slice) -> None:
        """Pass over these words before the filter is used."""
        self._words[words] = 0

    def add(self, fingerprints: npt.NDArray[np.uint64], column: int) -> None:
        """Let these pass for the run in the column from now on."""
        positions = self._positions(mix(fingerprints)).ravel()
        # A word that occurs twice gets the same bit twice: no need for an unbuffered `or`.
        self._words[positions] = self._words.take(positions) | np.uint64(1 << column)

    def words_of(self, mixed: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return for each fingerprint, mixed, a word with the bits of the runs that may hold it.

        Bits of columns released and not yet wiped may be among them.
        """
        return np.bitwise_and.reduce(self._words.take(self._positions(mixed)), axis=0)

    def word_of(self, fingerprint: int) -> int:
        """Return the same for one, without numpy's cost per call."""
        low, high = fingerprint & _LOW, fingerprint >> 32 | 1
        word = -1
        for probe in range(_PROBES):
            word &= self._word_view[((low + probe * high & _LOW) * self.word_count) >> 32]
            if not word:
                break
        return word

    @property
    def has_column_to_come(self) -> bool:
        """Whether a column is clean, or will be after the next passage."""
        return bool(self._clean | self._dirty)

    def take_column(self) -> int:
        """Take a clean column; there has to be one."""
        bit = self._clean & -self._clean
        assert bit, "the owner makes a column available before it takes the last clean one"
        self._clean ^= bit
        return bit.bit_length() - 1

    def release_column(self, column: int) -> None:
        """Give a column back, to be wiped."""
        self._dirty |= 1 << column

    def start_wiping(self) -> None:
        """Begin a passage that wipes what is dirty now; later releases wait for the next."""
        self._wiping, self._dirty = self._dirty, 0

    def wipe(self, words: slice) -> None:
        """Pass over these words."""
        if self._wiping:
            self._words[words] &= ~np.uint64(self._wiping)

    def finish_wiping(self) -> None:
        """End the passage: what it wiped is clean."""
        self._clean |= self._wiping
        self._wiping = 0

    def _positions(self, mixed: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        positions = mixed * np.uint64(self.word_count)
        positions >>= _HALF
        return positions.view(np.intp)
