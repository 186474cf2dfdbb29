"""Train SoftElim's parameter with a Numba kernel written for the machine's vector units.

The yardstick for what the machine can do at all: the same GradBand ascent as `numba_plain`, for this one
policy, written by someone who knows the algorithm, the compiler and the machine.

The kernel's shape:

* The instances are cut into blocks of ``LANES``; a thread takes a block through all its rounds.
* Inside a round the innermost loop runs over the *lanes* of the block, not over the arms, so that
  LLVM turns one round of sixteen instances into one stream of vector instructions.  For this the
  body has no branch, no call and no division check: arms are chosen by comparison and select,
  ``exp`` is a polynomial, and the random generator is made of 32-bit integer operations.
* The number of arms is frozen into the compiled code (one compilation per ``K``), because the loop
  over arms has to unroll away before the loop over lanes can be vectorised.  LLVM does that for
  up to six arms or so; for more the kernel stays right but falls back to scalar speed.
* Both runs of an instance sit in the same lane, share its reward uniform and advance together, so
  the gradient needs only the running difference of their scores and nothing is stored per round.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import e, log2, sqrt

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

# Instances a block: a multiple of the vector width, small enough for the state to stay in L1, and
# numerous enough blocks for the threads to share them evenly.
LANES = 64

# Random streams of an instance: its rewards, and the actions of its two runs.
REWARD, FIRST, SECOND = range(3)
RUNS = 2

THETA_START = 1.0
THETA_MIN = 1e-3

# fastmath lets the compiler fuse and reorder; the 'numpy' error model drops the test for division
# by zero, which is a branch and would stop the vectoriser.  A helper is inlined by LLVM: Numba's
# own inlining leaves reference counting behind, which stops it too.
FAST = {"fastmath": True, "error_model": "numpy"}
INLINE = {**FAST, "forceinline": True}

u32, u64, i32, f32 = np.uint32, np.uint64, np.int32, np.float32

Floats = NDArray[np.float32]
Words = NDArray[np.uint32]

ZERO, ONE = f32(0), f32(1)
LOG2_E = log2(e)
UNIFORM_STEP, UNIFORM_HALF_STEP = f32(2.0**-23), f32(2.0**-24)


@njit(**INLINE)
def _splitmix(x: np.uint64) -> np.uint64:
    """Scramble a 64-bit integer (the finaliser of splitmix64)."""
    x = (x ^ (x >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u64(27))) * u64(0x94D049BB133111EB)
    return x ^ (x >> u64(31))


@njit(**INLINE)
def _uniform(words: Words, stream: int, lane: int) -> np.float32:
    """Draw from (0, 1) with xoroshiro64*, a 32-bit generator of two words, and advance it."""
    a = words[stream, 0, lane]
    b = words[stream, 1, lane] ^ a
    words[stream, 0, lane] = ((a << u32(26)) | (a >> u32(6))) ^ b ^ (b << u32(9))
    words[stream, 1, lane] = (b << u32(13)) | (b >> u32(19))
    return _unit(u32(a * u32(0x9E3779BB)))


@njit(**INLINE)
def _unit(word: np.uint32) -> np.float32:
    # The midpoint of one of 2^23 cells, exact in float32.  Never 0: that would pull an arm of
    # vanishing probability, whose enormous score would throw the ascent off.  Never 1 either.
    return f32(i32(word >> u32(9))) * UNIFORM_STEP + UNIFORM_HALF_STEP


@njit(**INLINE)
def _turn(a: np.uint32, b: np.uint32, by: int) -> tuple[np.uint32, np.uint32]:
    a = u32(a + b)  # Numba adds words to 64 bits
    return a, u32(u32(b << u32(by)) | u32(b >> u32(32 - by))) ^ a


@njit(**INLINE)
def _threefry(k0: np.uint32, k1: np.uint32, t: np.uint32) -> tuple[np.uint32, np.uint32]:
    """gradband's generator: 13 rounds of threefry-2x32, of the counter (0, t)."""
    k2 = k0 ^ k1 ^ u32(0x1BD11BDA)
    a, b = k0, u32(t + k1)
    a, b = _turn(*_turn(*_turn(*_turn(a, b, 13), 15), 26), 6)
    a, b = u32(a + k1), u32(b + k2 + u32(1))
    a, b = _turn(*_turn(*_turn(*_turn(a, b, 17), 29), 16), 24)
    a, b = u32(a + k2), u32(b + k0 + u32(2))
    a, b = _turn(*_turn(*_turn(*_turn(a, b, 13), 15), 26), 6)
    a, b = u32(a + k0), u32(b + k1 + u32(3))
    return _turn(a, b, 17)


@njit(**INLINE)
def _hashed(words: Words, lane: int, t: np.uint32) -> tuple[np.float32, np.float32, np.float32]:
    """A round's draws from gradband's generator: a hash has two words, so three draws take two."""
    a, b = _threefry(words[0, 0, lane], words[0, 1, lane], t)
    return _unit(a), _unit(b), _unit(_threefry(words[1, 0, lane], words[1, 1, lane], t)[0])


@njit(**INLINE)
def _advanced(words: Words, lane: int, t: np.uint32) -> tuple[np.float32, np.float32, np.float32]:
    """A round's draws from the kernel's own generator."""
    return _uniform(words, REWARD, lane), _uniform(words, FIRST, lane), _uniform(words, SECOND, lane)


@njit(**INLINE)
def _copy(source: Words, target: Words, lane: int) -> None:
    """Copy the generators of a lane."""
    for stream in range(3):
        for word in range(2):
            target[stream, word, lane] = source[stream, word, lane]


@njit(**INLINE)
def _exp2(x: np.float32) -> np.float32:
    """2^x for x <= 0, to a relative 2e-7: a polynomial for the fraction, a bit shift for the rest.

    Exact at integers, so the empirically best arm weighs exactly 1.
    """
    x = max(x, f32(-100))  # below, the weight is nothing and the exponent would leave its bits
    whole = i32(x)
    part = x - f32(whole)  # in (-1, 0]
    power = f32(9.39659308642149e-4) * part + f32(9.19379387050867e-3)
    power = power * part + f32(5.52879199385643e-2)
    power = power * part + f32(2.401772290468216e-1)
    power = power * part + f32(6.931434273719788e-1)
    power = power * part + ONE
    return power * i32((whole + i32(127)) << i32(23)).view(f32)


def _compile_pull(arms: int) -> Callable[..., tuple[np.float32, np.float32]]:
    """Build the function that plays one round of one run, for this number of arms."""

    @njit(**INLINE)
    def pull(
        mu: Floats,
        mean: Floats,
        pulls: Floats,
        spread: Floats,
        bound: Floats,
        run: int,
        lane: int,
        u_action: np.float32,
        u_reward: np.float32,
        scale: np.float32,
    ) -> tuple[np.float32, np.float32]:
        """Play one round of one run; return the reward and the score, the latter times theta^2/2.

        ``spread`` receives S/2, and ``scale`` is -2 log2(e) / theta, so that an arm weighs
        2^(scale * spread) = exp(-S/theta).
        """
        best = mean[run, 0, lane]
        for i in range(1, arms):
            best = max(best, mean[run, i, lane])
        total = ZERO
        moment = ZERO
        for i in range(arms):
            gap = best - mean[run, i, lane]
            spread[i, lane] = gap * gap * pulls[run, i, lane]
            weight = _exp2(scale * spread[i, lane])
            total += weight
            moment += weight * spread[i, lane]
            bound[i, lane] = total
        # Inverse transform: the arm whose interval of cumulated weight holds the point.  The point
        # stays below the total even when rounded, so exactly one arm is hit.
        point = u_action * total
        lower = ZERO
        reward = ZERO
        score = -moment / total
        for i in range(arms):
            upper = bound[i, lane]
            hit = ONE if (lower <= point) & (point < upper) else ZERO
            gain = hit if u_reward < mu[i, lane] else ZERO
            lower = upper
            reward += gain
            score += hit * spread[i, lane]
            pulls[run, i, lane] += hit
            mean[run, i, lane] += (gain - hit * mean[run, i, lane]) / pulls[run, i, lane]
        return reward, score

    return pull


def _compile_block(arms: int, hashed: bool) -> Callable[..., tuple[float, float]]:
    """Build the function that plays a block of instances."""
    draw, pull = _hashed if hashed else _advanced, _compile_pull(arms)

    @njit(**FAST)
    def play(
        streams: Words, means: Floats, horizon: int, scale: np.float32, valid: int
    ) -> tuple[float, float]:
        """Play a block; return the sums of its first ``valid`` gradients and regrets.

        The arrays are created here, with a shape known when compiling: then the distances between
        their rows are constants, and the vectoriser can tell that lanes do not touch each other.
        """
        words = np.empty((3, 2, LANES), u32)
        mu = np.empty((arms, LANES), f32)
        mean = np.empty((RUNS, arms, LANES), f32)
        pulls = np.empty((RUNS, arms, LANES), f32)
        spread = np.empty((arms, LANES), f32)
        bound = np.empty((arms, LANES), f32)
        lead = np.empty(LANES, f32)  # score of the first run less that of the second
        gradient = np.empty(LANES, f32)

        for lane in range(LANES):
            _copy(streams, words, lane)
            kind = int(_uniform(words, FIRST, lane) * f32(len(means)))
            # The initial pulls: both runs earn the same and nothing is chosen, so these rounds add
            # nothing to the gradient.
            for i in range(arms):
                mu[i, lane] = means[kind, i]
                reward = ONE if _uniform(words, REWARD, lane) < means[kind, i] else ZERO
                for run in range(RUNS):
                    mean[run, i, lane] = reward
                    pulls[run, i, lane] = ONE
            lead[lane] = ZERO
            gradient[lane] = ZERO

        for t in range(arms, horizon):
            for lane in range(LANES):
                u, u0, u1 = draw(words, lane, u32(t))
                y0, z0 = pull(mu, mean, pulls, spread, bound, 0, lane, u0, u, scale)
                y1, z1 = pull(mu, mean, pulls, spread, bound, 1, lane, u1, u, scale)
                # (y0 - y1) z0 + (y1 - y0) z1 = (y0 - y1) (z0 - z1)
                lead[lane] += z0 - z1
                gradient[lane] += (y0 - y1) * lead[lane]

        for lane in range(LANES):
            _copy(words, streams, lane)
        gradients = 0.0
        regrets = 0.0
        for lane in range(valid):
            gradients += gradient[lane]
            best = mu[0, lane]
            for i in range(1, arms):
                best = max(best, mu[i, lane])
            for i in range(arms):
                regrets += (best - mu[i, lane]) * (pulls[0, i, lane] + pulls[1, i, lane]) / RUNS
        return gradients, regrets

    return play


@cache
def _compile(arms: int, hashed: bool) -> Callable[..., tuple[float, NDArray[np.float64]]]:
    """Build the training kernel for this number of arms, with its own generator or gradband's."""
    play = _compile_block(arms, hashed)

    @njit(parallel=True, **FAST)
    def ascend(
        seed: int, iterations: int, instances: int, horizon: int, means: Floats, alpha: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Run the whole ascent in compiled code, a parallel sweep over the blocks an iteration."""
        blocks = (instances + LANES - 1) // LANES
        # A generator for each stream of each instance; they live on from iteration to iteration.
        streams = np.empty((blocks, 3, 2, LANES), u32)
        flat = streams.reshape(-1)
        for i in range(flat.size):
            flat[i] = _splitmix(_splitmix(u64(seed)) + u64(i)) >> u64(32)
        gradients = np.empty(blocks)
        regrets = np.empty(blocks)
        regret = np.empty(iterations)
        theta = THETA_START
        for iteration in range(iterations):
            scale = f32(-2 * LOG2_E / theta)
            for block in prange(blocks):
                # The last block is played in full and counted in part.
                valid = min(LANES, instances - block * LANES)
                sums = play(streams[block], means, horizon, scale, valid)
                gradients[block], regrets[block] = sums
            regret[iteration] = regrets.sum() / instances
            # The scores lack 2/theta^2 and the sum over runs its 1/2: together theta^-2.
            theta = max(theta + alpha * gradients.sum() / instances / theta**2, THETA_MIN)
        return theta, regret

    return ascend


def train(
    seed: int,
    *,
    iterations: int = 100,
    instances: int = 1000,
    horizon: int = 200,
    means: Sequence[Sequence[float]] = ((0.6, 0.4), (0.4, 0.6)),
    c: float = 5.0,
    hashed: bool = False,
) -> tuple[float, NDArray[np.float64]]:
    """Train theta by GradBand with the 'self' baseline on instances drawn evenly from ``means``.

    Returns the final theta and the mean regret of the instances of each iteration, both runs
    averaged.  With ``hashed`` its random numbers come from gradband's generator.  The first call
    for a number of arms compiles.
    """
    table = np.array(means, dtype=f32)
    alpha = 1 / (c * sqrt(iterations))
    return _compile(table.shape[1], hashed)(seed, iterations, instances, horizon, table, alpha)
