"""How fast LinSoftElim is played where arms have features, beside NumPy vectorised over instances.

    python benchmarks/contextual_speed.py

All play `rvr-linear`, 30 arms with five features, for 250 rounds, in turn and in one process. The target:
NumPy takes 8 times as long on two cores. One version in NumPy is written in the obvious way. The other is
tuned: single precision, instances in the last axis, few new arrays. The total CPU time of all cores is
shown too, since it depends less on what else the machine does.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

import gradband as gb
from gradband.policies import LinSoftElim, references

CHUNK = 512  # instances that NumPy plays at a time: a few hundred are its fastest
ROUNDS, ARMS, DIMS, WITHIN = 250, 30, 5, 10**0.5


def written_down(seed: int) -> np.ndarray:
    """The regrets [instances] of LinSoftElim with a = 1."""
    rng, rows = np.random.default_rng(seed), np.arange(CHUNK)
    x = rng.uniform(-(DIMS**-0.5), DIMS**-0.5, (CHUNK, ARMS, DIMS))
    means = (x @ (WITHIN * rng.normal(size=(CHUNK, DIMS, 1))))[:, :, 0]
    covariance = np.tile(WITHIN**2 * np.eye(DIMS), (CHUNK, 1, 1))
    belief, regret = np.zeros((CHUNK, DIMS)), np.zeros(CHUNK)
    for _ in range(ROUNDS):
        along = x @ covariance
        expected = (x @ belief[:, :, None])[:, :, 0]
        gaps = expected.max(1, keepdims=True) - expected
        edges = np.exp(-(gaps**2) / (along * x).sum(2)).cumsum(1)
        arm = (rng.random((CHUNK, 1)) * edges[:, -1:] >= edges).sum(1)
        reward = means[rows, arm] + rng.normal(size=CHUNK)
        regret += means.max(1) - means[rows, arm]
        f = along[rows, arm]
        share = 1 / (1 + (f * x[rows, arm]).sum(1))
        belief += (share * (reward - expected[rows, arm]))[:, None] * f
        covariance -= share[:, None, None] * f[:, :, None] * f[:, None]
    return regret


def tuned(seed: int) -> np.ndarray:
    """The same, faster."""
    rng, single = np.random.Generator(np.random.SFC64(seed)), np.float32
    x = (rng.random((DIMS, ARMS, CHUNK), dtype=single) - single(0.5)) * single(2 * DIMS**-0.5)
    theta = rng.standard_normal((DIMS, CHUNK), dtype=single) * single(WITHIN)
    means = (x * theta[:, None]).sum(0)
    best, flat, columns = means.max(0), x.reshape(DIMS, -1), np.arange(CHUNK)
    covariance = np.zeros((DIMS, DIMS, CHUNK), single)
    covariance[np.arange(DIMS), np.arange(DIMS)] = WITHIN**2
    belief, regret = np.zeros((DIMS, CHUNK), single), np.zeros(CHUNK, single)
    expected, variance, along, product = (np.empty((ARMS, CHUNK), single) for _ in range(4))
    for _ in range(ROUNDS):
        np.multiply(x[0], belief[0], out=expected)
        for i in range(1, DIMS):
            expected += np.multiply(x[i], belief[i], out=product)
        variance[:] = 0
        for i in range(DIMS):  # xᵢ (cᵢᵢ xᵢ + 2 Σ_{j > i} cᵢⱼ xⱼ)
            np.multiply(x[i], covariance[i, i], out=along)
            for j in range(i + 1, DIMS):
                along += np.multiply(x[j], 2 * covariance[i, j], out=product)
            variance += np.multiply(along, x[i], out=along)
        np.subtract(expected, expected.max(0), out=product)
        np.divide(np.multiply(product, product, out=product), variance, out=product)
        edges = np.cumsum(np.exp(np.negative(product, out=product), out=product), axis=0, out=along)
        arm = (rng.random(CHUNK, dtype=single) * edges[-1] >= edges).sum(0)
        place = arm * CHUNK + columns
        pulled, mean = flat[:, place], means.ravel()[place]
        regret += best - mean
        surprise = mean + rng.standard_normal(CHUNK, dtype=single) - (pulled * belief).sum(0)
        f = (covariance * pulled[None]).sum(1)
        share = 1 / (1 + (f * pulled).sum(0))
        belief += share * surprise * f
        covariance -= share * f[:, None] * f[None]
    return regret


def measure(play: Callable[[], np.ndarray]) -> tuple[float, float, np.ndarray]:
    """Seconds per instance, by the clock and of all cores together, and the regrets."""
    clock, cores = time.perf_counter(), time.process_time()
    regrets = play()
    count = len(regrets)
    return (time.perf_counter() - clock) / count, (time.process_time() - cores) / count, regrets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, default=20_000, help="that gradband plays at a time")
    parser.add_argument("--times", type=int, default=5, help="how often all play; medians are shown")
    given = parser.parse_args()
    problem = gb.problems.named("rvr-linear")
    policy = references.by_name(LinSoftElim(), problem)

    def ours(seed: int) -> np.ndarray:
        table = gb.evaluate(policy, problem, instances=given.instances, seed=seed, progress=False)
        return table.rows[0].regrets

    ours(given.times)  # compiles
    ways: dict[str, Callable[[int], np.ndarray]] = {"gradband": ours, "NumPy": written_down, "tuned": tuned}
    found: dict[str, list[tuple[float, float, np.ndarray]]] = {name: [] for name in ways}
    for seed in range(given.times):
        for name, way in ways.items():
            found[name].append(measure(lambda way=way, seed=seed: way(seed)))
    middle = {
        name: np.median([[clock, cores] for clock, cores, _ in rows], axis=0)
        for name, rows in found.items()
    }
    for name, rows in found.items():
        regrets = np.concatenate([regrets for *_, regrets in rows])
        (clock, cores), times = 1e6 * middle[name], middle[name] / middle["gradband"]
        print(
            f"{name}: {clock:.1f} µs per instance, {cores:.1f} µs of all cores together; "
            f"{times[0]:.1f} and {times[1]:.1f} times as long as gradband; "
            f"regret {regrets.mean():.2f} ± {regrets.std() / len(regrets) ** 0.5:.2f}"
        )


if __name__ == "__main__":
    main()
