"""Public names and signatures change on purpose only, and whatever takes a policy takes any form of it.

After a change on purpose: python tests/test_api.py
"""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import gradband as gb

SNAPSHOT = Path(__file__).with_name("public_names.txt")
PLACES = ("gradband", "gradband.policies", "gradband.problems.priors", "gradband.problems")
PLACES += ("gradband.problems.rewards", "gradband.exact")


def public(module):
    """Public names of a module: `__all__`, or what it defines and what it hands on as `x as x`."""
    if listed := getattr(module, "__all__", None):
        return sorted(listed)
    own = {
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    }
    handed_on = re.findall(r"import (\w+) as \1\n", Path(module.__file__).read_text(encoding="utf-8"))
    return sorted(name for name in own | set(handed_on) if name[0] != "_")


def signature(value):
    """The parameters of a function or class with their defaults; types may be refined."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    words = [
        re.sub(r"<(\w+) .*? at 0x[0-9a-f]+>", r"<\1>", str(parameter.replace(annotation=parameter.empty)))
        for parameter in found.parameters.values()
        if parameter.name != "self"
    ]
    return f"({', '.join(words)})"


def methods(value):
    """Public methods and properties that a class has of its own."""
    if not inspect.isclass(value):
        return []
    names = sorted(name for name, entry in vars(value).items() if name[0] != "_" and callable(entry))
    return [f"    {name}{signature(getattr(value, name))}" for name in names]


def snapshot():
    lines = []
    for place in PLACES:
        module = importlib.import_module(place)
        for name in public(module):
            value = getattr(module, name)
            if name == "__version__" or inspect.ismodule(value):
                continue
            lines += [f"{place}.{name}{signature(value) if callable(value) else ''}", *methods(value)]
    return "\n".join(lines) + "\n"


def test_public_names_and_signatures_are_those_that_were_promised():
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8"), "on purpose? python tests/test_api.py"


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """The same policy in every form: a name with settings, a policy, a learned one, and its file."""
    problem = gb.problems.named("two-point", horizon=4)
    policy = gb.policies.SoftElim(theta=0.5).bind(2, 4)
    learned = gb.Learned(policy, policy.as_params({"theta": 0.5}), {}, {})
    file = tmp_path_factory.mktemp("policy") / "policy.safetensors"
    learned.save(file)
    return problem, ["softelim:theta=0.5", gb.policies.SoftElim(theta=0.5), learned, file, str(file)]


@pytest.mark.brief
def test_whatever_takes_a_policy_takes_every_form_of_it(forms):
    problem, given = forms
    uses = {
        "evaluate": lambda policy: gb.evaluate(policy, problem, instances=50).rows[0].regret,
        "estimate": lambda policy: gb.estimate(policy, problem, instances=50).mean.tolist(),
        "by_counts": lambda policy: gb.exact.by_counts(policy, problem).reward,
        "by_enumeration": lambda policy: gb.exact.by_enumeration(policy, problem).reward,
        "imitate": lambda policy: (
            gb.learn("kl-softelim", problem, imitate=policy, iterations=1, instances=16)
            .history["regret"]
            .tolist()
        ),
    }
    for name, use in uses.items():
        first, *others = [use(policy) for policy in given]
        assert all(other == first for other in others), name


@pytest.mark.brief
def test_learning_goes_on_from_what_was_learned(forms):
    problem, (_, _, learned, file, _) = forms
    found = [gb.learn(policy, problem, iterations=2, instances=64, seed=3) for policy in (learned, file)]
    begun = gb.learn("softelim", problem, params={"theta": 0.5}, iterations=2, instances=64, seed=3)
    for again in found:
        assert again.history["params"].tolist() == begun.history["params"].tolist()


def test_players_take_files_learned_and_bound_policies(forms):
    _, (_, policy, learned, file, text) = forms
    players = [gb.Player(given, seed=1) for given in (learned, file, text, policy.bind(2, 4))]
    first, *others = [[int(player.select()) for _ in range(2)] for player in players]
    assert all(other == first for other in others)
    assert gb.Player(gb.policies.ThompsonSampling().bind(3, 100), seed=1).probabilities().shape == (3,)
    with pytest.raises(gb.InputError, match=r"ts must be bound first: ts.bind\(arms, horizon\)"):
        gb.Player(gb.policies.ThompsonSampling())


def test_results_print_in_a_line(forms):
    problem, (_, _, learned, _, _) = forms
    results = [
        learned,
        gb.evaluate(learned, problem, instances=50),
        gb.estimate(learned, problem, instances=50),
        gb.exact.optimum(problem),
        gb.exact.by_counts(learned, problem),
        problem,
        gb.Player(learned),
    ]
    for result in results:
        assert "\n" not in repr(result)
        assert len(repr(result)) < 300, type(result)


@pytest.mark.parametrize("function", [gb.evaluate, gb.compare, gb.estimate, gb.explain, gb.learn, gb.sweep])
def test_misspelt_arguments_are_refused(function):
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'instanses'"):
        function("softelim", "two-point", instanses=50)


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
