"""A player's random numbers. A restart continues them and repeats none."""

import numpy as np


class Draws:
    """Uniform random numbers of a seed. NumPy promises that these bits never change."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn = 0
        self._bits = np.random.PCG64(seed)
        self._behind = 0  # draws that were skipped, which the generator has yet to skip

    def next(self) -> float:
        """A uniform on [0, 1)."""
        if self._behind:
            self._bits.advance(self._behind)
            self._behind = 0
        self.drawn += 1
        return float(self._bits.random_raw() >> 11) * 2.0**-53

    def skip_to(self, drawn: int) -> None:
        """Skips to the state after this many draws."""
        if drawn > self.drawn:
            self._behind += drawn - self.drawn
            self.drawn = drawn

    def choose(self, p: np.ndarray) -> int:
        """A place, drawn with probabilities p."""
        edges = p.cumsum()
        place = int(edges.searchsorted(self.next() * edges[-1], "right"))
        return place if place < len(p) else int(p.nonzero()[0][-1])

    def multinomial(self, count: int, p: np.ndarray) -> np.ndarray:
        """How often each place is drawn in a batch, which has a stream of its own."""
        self.next()
        return np.random.default_rng([self.seed, self.drawn]).multinomial(count, p / p.sum())
