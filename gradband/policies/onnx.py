"""A policy as an ONNX model, for runtimes without Python.

The model is one step: (state, arm, reward) → (next state, probabilities), and with contexts (state, arm,
reward, the arm's features, features of the next round) → the same. The policy's JAX functions are traced,
and their operations are translated by `onnx_graph`.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradband import __version__
from gradband.core import jax_setup as jax_setup
from gradband.core.arrays import leaf_names
from gradband.core.errors import InputError
from gradband.core.extras import needs
from gradband.core.files import write_atomically
from gradband.policies.base import Policy, Seeing
from gradband.policies.onnx_graph import Graph
from gradband.policies.policy_file import Learned

if TYPE_CHECKING:
    import onnx

OPSET, IR = 18, 9  # of 2023, which runtimes support


def write(model: "onnx.ModelProto", path: str | Path) -> None:
    """Writes a model to a file."""
    write_atomically(Path(path), lambda target: target.write_bytes(model.SerializeToString()))


def as_onnx(learned: Learned) -> "onnx.ModelProto":
    """The model. Its inputs are the state's arrays, an `arm` and its `reward`; its outputs are the
    next state's arrays, named `next_…`, and `probabilities` for the next round. An arm of −1 leaves the
    state unchanged. The first state is all zeros; if a policy has another, the model's metadata have it as
    `first_state`, a JSON object of lists by the arrays' names.

    With contexts there are two more inputs: the features `x` [d] with which the arm was pulled, and the
    `features` [K, d] of the arms in the next round. A visitor's are repeated for each arm, or [d] if the
    policy takes only those.
    """
    try:
        import onnx
    except ImportError:
        raise needs("exporting to ONNX", "onnx") from None
    policy = learned.policy
    if policy.latents > 1:
        raise InputError(
            f"{policy.name} makes a random choice before the first round, which ONNX models cannot"
        )
    params = policy.folded(learned.params)
    first = policy.begin(params, jnp.int32(0))
    paths, tree = jax.tree_util.tree_flatten_with_path(first)
    names = leaf_names([tuple(re.findall(r"\w+", jax.tree_util.keystr(path))) for path, _ in paths])
    leaves = [np.asarray(leaf) for _, leaf in paths]
    starts = {name: leaf.tolist() for name, leaf in zip(names, leaves, strict=True) if leaf.any()}
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise InputError(
            f"the first state of {policy.name} has infinite numbers, which JSON does not allow"
        )

    count = len(leaves)
    shapes = context_shapes(policy)

    def step(*inputs: Array) -> tuple[Array, ...]:
        state, (arm, reward, *seen) = jax.tree.unflatten(tree, inputs[:count]), inputs[count:]
        place, before = jnp.maximum(arm, 0), state
        if isinstance(policy, Seeing):
            state, place = policy.see_pulled(params, state, seen[0], place)
        after = policy.update(params, state, place, reward)
        after = jax.tree.map(lambda new, old: jnp.where(arm < 0, old, new), after, before)
        shown = policy.see(params, after, seen[1]) if seen else after
        return *jax.tree.leaves(after), policy.next_probabilities(params, shown)

    try:
        zeros = [np.zeros(shape, np.float32) for shape in shapes.values()]
        traced = jax.make_jaxpr(step)(*leaves, np.int32(0), np.float32(0), *zeros)
    except NotImplementedError:
        raise InputError(f"{policy.name} draws samples, for which ONNX has no operation") from None
    outputs = [*(f"next_{name}" for name in names), "probabilities"]
    graph = Graph(onnx, policy.name).traced(traced, [*names, "arm", "reward", *shapes], outputs)
    model = onnx.helper.make_model(
        graph,
        producer_name="gradband",
        producer_version=__version__,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR,
    )
    about = {
        "policy": policy.name,
        "arms": policy.arms,
        "horizon": policy.horizon,
        "rewards": "0 or 1" if policy.binary else "in [0, 1]" if policy.unit else "any",
        "settings": json.dumps(policy.settings()),
        **({"first_state": json.dumps(starts)} if starts else {}),
    }
    onnx.helper.set_model_props(model, {key: str(value) for key, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    return model


def context_shapes(policy: Policy) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the inputs with features, if the policy takes contexts."""
    if not isinstance(policy, Seeing):
        return {}
    own = (policy.arms, policy.dims) if policy.takes_arms else (policy.dims,)
    return {"x": (policy.dims,), "features": own}
