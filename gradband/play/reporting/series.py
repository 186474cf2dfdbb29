"""Sums over time in at most 200 bins, whatever the length of a test."""

import numpy as np

from gradband.play.reporting.allocation import pad

MOST_BINS = 200


class Bins:
    """Rows [F, K] summed over bins of equally many decisions; full bins are joined in pairs."""

    def __init__(self, rows: int, arms: int) -> None:
        self.width, self.count = 1, 0
        self.times = np.full(MOST_BINS, np.nan)  # of each bin's first decision
        self.sums = np.zeros((MOST_BINS, rows, arms))

    def add(self, times: np.ndarray, values: np.ndarray) -> None:
        """Adds decisions with their times [n] and values [n, F, K]."""
        while self.count + len(times) > MOST_BINS * self.width:
            self._join()
        place = (self.count + np.arange(len(times))) // self.width
        np.add.at(self.sums, place, values)
        first, where = np.unique(place, return_index=True)
        new = np.isnan(self.times[first])
        self.times[first[new]] = times[where[new]]
        self.count += len(times)

    def _join(self) -> None:
        half = MOST_BINS // 2
        self.sums[:half] = self.sums[0::2] + self.sums[1::2]
        self.sums[half:] = 0
        self.times[:half] = self.times[0::2]
        self.times[half:] = np.nan
        self.width *= 2

    def widen(self, arms: int) -> None:
        """Makes room for new arms."""
        self.sums = pad(self.sums, arms)

    @property
    def filled(self) -> int:
        return -(-self.count // self.width)
