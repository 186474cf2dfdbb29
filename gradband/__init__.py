"""gradband learns exploration policies for bandits by gradient ascent on the Bayes reward.

Names are imported when they are first used, so that `import gradband` is fast.

    import gradband as gb

    problem = gb.Problem(gb.priors.Beta(arms=10), horizon=1000)
    learned = gb.learn(gb.policies.SoftElim(), problem, seed=0)
    table = gb.evaluate([learned, gb.policies.ThompsonSampling()], problem)
    learned.save("policy.safetensors")
    player = gb.Player("policy.safetensors")
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from gradband._version import __version__

if TYPE_CHECKING:
    from gradband import exact, policies, problems
    from gradband.core.errors import InputError
    from gradband.evaluation.evaluate import evaluate
    from gradband.evaluation.explain import Explanation, explain
    from gradband.evaluation.sweep import Sweep, sweep
    from gradband.gradient.baselines import Baseline
    from gradband.gradient.estimator import Estimator, estimate
    from gradband.learning.learn import learn
    from gradband.learning.recipes import Recipe, annealed
    from gradband.play.player import Player
    from gradband.policies.policy_file import Learned, load
    from gradband.problems import Problem, priors, rewards

# A scan over rounds is hundreds of tiny steps, which XLA runs faster if it compiles them as one function
# with several results a loop. There is no other way to ask for that than this variable, before JAX starts;
# flags of this kind that the user has set stay.
_LOOPS = "xla_cpu_small_while_loop_byte_threshold=100000000,xla_cpu_use_multi_output_fusion=true"
_FLAGS = os.environ.get("XLA_FLAGS", "")
if "xla_backend_extra_options" not in _FLAGS:
    os.environ["XLA_FLAGS"] = f"{_FLAGS} --xla_backend_extra_options={_LOOPS}".strip()

_HOMES = {
    "InputError": "core.errors",
    "Problem": "problems",
    "Baseline": "gradient.baselines",
    "Estimator": "gradient.estimator",
    "estimate": "gradient.estimator",
    "Learned": "policies.policy_file",
    "Recipe": "learning.recipes",
    "annealed": "learning.recipes",
    "learn": "learning.learn",
    "load": "policies.policy_file",
    "Player": "play.player",
    "evaluate": "evaluation.evaluate",
    "Explanation": "evaluation.explain",
    "explain": "evaluation.explain",
    "Sweep": "evaluation.sweep",
    "sweep": "evaluation.sweep",
}
_MODULES = {
    "exact": "exact",
    "policies": "policies",
    "priors": "problems.priors",
    "problems": "problems",
    "rewards": "problems.rewards",
}

__all__ = [
    "Baseline",
    "Estimator",
    "Explanation",
    "InputError",
    "Learned",
    "Player",
    "Problem",
    "Recipe",
    "Sweep",
    "__version__",
    "annealed",
    "estimate",
    "evaluate",
    "exact",
    "explain",
    "learn",
    "load",
    "policies",
    "priors",
    "problems",
    "rewards",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gradband.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"gradband.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gradband' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
