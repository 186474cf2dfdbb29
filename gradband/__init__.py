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
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
"""The version of gradband."""

if TYPE_CHECKING:
    from gradband import exact, policies, problems
    from gradband.core.errors import InputError
    from gradband.engine.blocks import Where
    from gradband.evaluation.evaluate import Comparison, evaluate
    from gradband.evaluation.explain import Explanation, explain
    from gradband.evaluation.gain import Gain, gain
    from gradband.evaluation.planned import Plan
    from gradband.evaluation.planning import plan
    from gradband.evaluation.price import Price, price_of_guardrails
    from gradband.evaluation.replayed import Replay
    from gradband.evaluation.replaying import replay
    from gradband.evaluation.standing import Standing, compare
    from gradband.evaluation.sweep import Sweep, sweep
    from gradband.gradient.baselines import Baseline
    from gradband.gradient.estimator import Estimator, estimate
    from gradband.learning.learn import learn
    from gradband.learning.recipes import Recipe, annealed
    from gradband.play.by_segment import segment_weights
    from gradband.play.player import Player
    from gradband.play.reporting.report import report
    from gradband.play.settings import Settings
    from gradband.play.weights import assign, weights
    from gradband.policies.policy_file import Learned, load
    from gradband.problems import Problem, priors, rewards
    from gradband.problems.fitted import FittedProblem, fit

_HOMES = {
    "InputError": "core.errors",
    "Where": "engine.blocks",
    "Problem": "problems",
    "FittedProblem": "problems.fitted",
    "fit": "problems.fitted",
    "Baseline": "gradient.baselines",
    "Estimator": "gradient.estimator",
    "estimate": "gradient.estimator",
    "Learned": "policies.policy_file",
    "Recipe": "learning.recipes",
    "annealed": "learning.recipes",
    "learn": "learning.learn",
    "load": "policies.policy_file",
    "Player": "play.player",
    "Settings": "play.settings",
    "assign": "play.weights",
    "segment_weights": "play.by_segment",
    "weights": "play.weights",
    "report": "play.reporting.report",
    "Comparison": "evaluation.evaluate",
    "evaluate": "evaluation.evaluate",
    "Gain": "evaluation.gain",
    "gain": "evaluation.gain",
    "Standing": "evaluation.standing",
    "compare": "evaluation.standing",
    "Explanation": "evaluation.explain",
    "explain": "evaluation.explain",
    "Plan": "evaluation.planned",
    "plan": "evaluation.planning",
    "Replay": "evaluation.replayed",
    "replay": "evaluation.replaying",
    "Price": "evaluation.price",
    "price_of_guardrails": "evaluation.price",
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
    "Comparison",
    "Estimator",
    "Explanation",
    "FittedProblem",
    "Gain",
    "InputError",
    "Learned",
    "Plan",
    "Player",
    "Price",
    "Problem",
    "Recipe",
    "Replay",
    "Settings",
    "Standing",
    "Sweep",
    "Where",
    "__version__",
    "annealed",
    "assign",
    "compare",
    "estimate",
    "evaluate",
    "exact",
    "explain",
    "fit",
    "gain",
    "learn",
    "load",
    "plan",
    "policies",
    "price_of_guardrails",
    "priors",
    "problems",
    "replay",
    "report",
    "rewards",
    "segment_weights",
    "sweep",
    "weights",
]


def __getattr__(name: str) -> Any:
    home = _MODULES.get(name) or _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gradband' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"gradband.{home}")
    except ModuleNotFoundError as error:
        from gradband.core.extras import extra_of, needs

        if extra := extra_of(error):
            raise needs(f"gradband.{name}", extra) from None
        raise
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
