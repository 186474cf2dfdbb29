"""Makes the pretrained policy: fits its network to Gittins indices of many priors and horizons.

`python -m gradband.learning.pretraining` writes the file that comes with the package.
"""

import argparse
import functools
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gradband import __version__
from gradband.core import jax_setup as jax_setup
from gradband.core import resources, tensor_file
from gradband.policies.pretrained_index import FILE, Pretrained, moments, network, network_inputs
from gradband.solvers.gittins import diagonal

SEED = 0
DIAGONALS = 1500  # each with its own prior and its own sum of pulls and rounds left
FEWEST_ROUNDS, MOST_ROUNDS = 2, 4000
STATES = 1000  # of each diagonal
SHAPES = 0.2, 200.0  # of the priors: least and greatest a and b
STEPS, BATCH, RATE = 20_000, 8192, 0.005
LEAST_UNIT = 0.001  # of an output: indices are precise to 4 · 10⁻⁵

Data = dict[str, np.ndarray]


def draw_states(rng: np.random.Generator) -> Data:
    """Random states of a random prior, whose pulls and rounds left have a random sum, with their indices.

    Returns:
        `ones` α, `zeros` β, rounds `left` m and the Gittins `index` of each state.
    """
    low, high = np.log(SHAPES)
    a, b = np.exp(rng.uniform(low, high, 2)).tolist() if rng.random() < 0.7 else (1.0, 1.0)
    last = round(math.exp(rng.uniform(math.log(FEWEST_ROUNDS), math.log(MOST_ROUNDS))))
    found = diagonal(a, b, last)
    # Pulls are spread evenly on a logarithmic scale, from the first round and from the last one.
    few = np.floor(np.exp(rng.uniform(0, math.log(last + 1), STATES))).astype(int) - 1
    pulls = np.where(rng.random(STATES) < 0.5, few, last - 1 - few).clip(0, last - 1)
    # Half of the arms are as the prior has them or better, half have any share of successes.
    best = rng.beta(a, b, (STATES, 8))
    means = np.where(rng.random(STATES) < 0.5, best[:, 0], best.max(1))
    ones = rng.binomial(pulls, means)
    ones = np.where(rng.random(STATES) < 0.5, ones, np.floor(rng.random(STATES) * (pulls + 1)).astype(int))
    index = found[pulls * (pulls + 1) // 2 + ones]
    return {"ones": a + ones, "zeros": b + pulls - ones, "left": last - pulls, "index": index}


def draw_data(diagonals: int, seed: int) -> Data:
    """States of many diagonals."""
    streams = np.random.default_rng(seed).spawn(diagonals)
    with ThreadPoolExecutor(resources.cores()) as pool:
        parts = list(pool.map(draw_states, streams))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def as_examples(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The network's inputs [7, N], and the outputs [N] that it should have.

    States in which all indices are about the posterior mean are left out, as in the last round.
    """
    mean, spread, resolved = moments(data["ones"], data["zeros"], data["left"])
    unit = spread * resolved
    kept = unit > LEAST_UNIT
    x = network_inputs(data["ones"], data["zeros"], data["left"])
    return x[:, kept], (data["index"] - mean)[kept] / unit[kept]


def fit(x: np.ndarray, y: np.ndarray, steps: int = STEPS, seed: int = SEED) -> dict[str, Any]:
    """The network's weights after Adam on squared errors, with steps that decrease to 0."""
    rng = np.random.default_rng(seed)
    params: dict[str, Any] = {}
    for name, spec in Pretrained().specs().items():
        scale = math.sqrt(2 / spec.shape[-1]) if name.startswith("w") else 0.0
        params[name] = jnp.asarray(scale * rng.normal(size=spec.shape), jnp.float32)
    params.pop("sharpness")
    optimizer = optax.adam(optax.warmup_cosine_decay_schedule(0, RATE, steps // 20, steps, 0.0), b2=0.99)
    inputs, outputs = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def loss(params: Any, chosen: Any) -> Any:
        return jnp.mean((network(params, inputs[:, chosen]) - outputs[chosen]) ** 2)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def advance(params: Any, state: Any, key: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            params, state = carry
            chosen = jax.random.randint(key, (BATCH,), 0, len(outputs))
            value, gradient = jax.value_and_grad(loss)(params, chosen)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(params, updates), state), value

        (params, state), values = jax.lax.scan(step, (params, state), jax.random.split(key, 200))
        return params, state, values.mean()

    state = optimizer.init(params)
    for part in range(steps // 200):
        params, state, value = advance(params, state, jax.random.fold_in(jax.random.key(seed), part))
        if part % 10 == 9:
            print(f"step {200 * (part + 1)}: root mean squared error {math.sqrt(value):.4f}", flush=True)
    return params


def make(path: Path, diagonals: int = DIAGONALS, steps: int = STEPS, seed: int = SEED) -> float:
    """Writes the policy file, and returns the network's error on fresh states.

    Args:
        path: The file to write.
        diagonals: Diagonals of states with Gittins indices to fit to.
        steps: Steps of Adam.
        seed: Determines the states, the first weights and the batches.
    """
    params = fit(*as_examples(draw_data(diagonals, seed)), steps, seed)
    x, y = as_examples(draw_data(max(1, diagonals // 10), seed + 1))
    error = float(np.sqrt(np.mean((network(params, x) - y) ** 2)))
    policy = Pretrained().bind(arms=10, horizon=1000)  # a file names a size; this one plays all
    training = {"diagonals": diagonals, "steps": steps, "seed": seed, "error": round(error, 5)}
    about = {
        "policy": policy.name,
        "settings": policy.settings(),
        "arms": policy.arms,
        "horizon": policy.horizon,
        "stopped": "",
        "gradband": __version__,
        "training": training,
    }
    arrays = {f"params.{name}": np.asarray(leaf, np.float32) for name, leaf in params.items()}
    arrays["params.sharpness"] = np.asarray(policy.sharpness, np.float32)
    tensor_file.save(path, "policy", arrays, about)
    return error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FILE, help="file to write (default: the package's own)")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="determines all draws (default: %(default)s)"
    )
    given = parser.parse_args()
    error = make(given.out, seed=given.seed)
    print(f"{given.out}: root mean squared error {error:.4f} on fresh states")


if __name__ == "__main__":
    main()
