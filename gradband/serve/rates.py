"""Token buckets: how many requests each client may make."""

import time
from collections.abc import Callable


class Bucket:
    """Refills at `rate` requests per second, up to a burst of two seconds.

    >>> now = 0.0
    >>> bucket = Bucket(rate=1.0, clock=lambda: now)
    >>> [bucket.wait() for _ in range(3)]
    [0.0, 0.0, 1.0]
    >>> now = 1.5
    >>> bucket.wait(), bucket.wait()
    (0.0, 0.5)
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._most = max(2 * rate, 1.0)
        self._left, self._last = self._most, clock()

    def wait(self) -> float:
        """Takes one request from the bucket, or returns the seconds until there is one."""
        now = self._clock()
        self._left = min(self._left + (now - self._last) * self._rate, self._most)
        self._last = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0
