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
    from gradband import exact, policies, priors, problems, rewards
    from gradband.errors import InputError
    from gradband.evaluation import evaluate
    from gradband.explanation import Explanation, explain
    from gradband.gradient import Estimator, estimate
    from gradband.learned import Learned, load
    from gradband.learning import learn
    from gradband.player import Player
    from gradband.problems import Problem
    from gradband.recipes import Recipe, annealed

# A scan over rounds is hundreds of tiny steps, which XLA runs faster if it compiles them as one function
# with several results a loop. There is no other way to ask for that than this variable, before JAX starts;
# flags of this kind that the user has set stay.
_LOOPS = "xla_cpu_small_while_loop_byte_threshold=100000000,xla_cpu_use_multi_output_fusion=true"
_FLAGS = os.environ.get("XLA_FLAGS", "")
if "xla_backend_extra_options" not in _FLAGS:
    os.environ["XLA_FLAGS"] = f"{_FLAGS} --xla_backend_extra_options={_LOOPS}".strip()

_HOMES = {
    "InputError": "errors",
    "Problem": "problems",
    "Estimator": "gradient",
    "estimate": "gradient",
    "Learned": "learned",
    "Recipe": "recipes",
    "annealed": "recipes",
    "learn": "learning",
    "load": "learned",
    "Player": "player",
    "evaluate": "evaluation",
    "Explanation": "explanation",
    "explain": "explanation",
}
_MODULES = ("exact", "policies", "priors", "problems", "rewards")

__all__ = [
    "Estimator",
    "Explanation",
    "InputError",
    "Learned",
    "Player",
    "Problem",
    "Recipe",
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
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'gradband' has no attribute {name!r}")
    home = importlib.import_module(f"gradband.{_HOMES.get(name, name)}")
    return getattr(home, name) if name in _HOMES else home


def __dir__() -> list[str]:
    return __all__
