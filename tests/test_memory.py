"""Memory: what is estimated is what is taken, a limit is kept, and the impossible is refused at once."""

import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import gradband as gb
from gradband.core import prng
from gradband.core.errors import InputError
from gradband.engine import blocks, memory
from gradband.engine.memory import AT_REST, Needs
from gradband.gradient import estimator, surrogate

pytestmark = pytest.mark.brief


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2GB", 2 * 10**9),
        ("1.5 gb", 15 * 10**8),
        ("512MiB", 2**29),
        ("100k", 102400),
        ("7", 7),
        (10**9, 10**9),
    ],
)
def test_sizes(text, count):
    assert memory.parse(text) == count


@pytest.mark.parametrize("given", ["", "GB", "2 elephants", "-1GB", "0", "1e9", "nan", True, 0, 2.5, None])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(InputError, match="memory must be a"):
        memory.parse(given)


def work(policy, problem, instances=64, baseline="self"):
    """The gradient of a policy, in blocks."""
    bound = gb.policies.named(policy).bind(problem.arms, problem.horizon)
    params = bound.init(jax.random.key(0))
    how = estimator.Estimator(baseline)
    controls = estimator.Controls(critic=how.critic(problem.rounds))
    return estimator.gradient_job(bound, problem, params, prng.root(0), 0, instances, how, controls)


def estimate(todo):
    return memory.estimate(todo.function, todo.settings, (*todo.operands, np.int32(0)))


@pytest.mark.parametrize(
    ("policy", "problem", "baseline"),
    [
        ("lstm", gb.problems.named("uniform-2", horizon=300), "self"),
        ("index", gb.problems.named("bernoulli-10", horizon=300), "none"),
        ("softelim", gb.problems.named("bernoulli-10", horizon=500), "critic"),
    ],
    ids=["lstm", "index", "critic"],
)
def test_the_estimate_is_what_the_compiler_needs(policy, problem, baseline):
    """XLA may find out that some arrays need not be there at once, such as those a critic looks at."""
    todo = work(policy, problem, baseline=baseline)
    lowered = todo.function.lower(*todo.settings, *todo.operands, np.int32(0))
    truly = lowered.compile().memory_analysis().temp_size_in_bytes
    found = estimate(todo)
    assert 0.95 * truly < found.block < (1.1 if baseline == "self" else 4) * truly
    assert found.block > 10**6


def test_what_grows_is_known_to_grow():
    short, long = (estimate(work("lstm", gb.problems.named("uniform-2", horizon=n))) for n in (50, 100))
    assert long.block == pytest.approx(2 * short.block, rel=0.1)
    assert long.result == short.result
    few, many = (
        estimate(work("softelim", gb.problems.named("bernoulli-10", horizon=n))) for n in (50, 100)
    )
    assert many.block == pytest.approx(few.block, rel=0.01)


NEEDS = Needs(shared=100, block=1000, result=10)


@pytest.mark.parametrize(("most", "count"), [(1400, 1), (2399, 1), (2400, 2), (3400, 3), (10**9, 3)])
def test_as_many_blocks_as_fit(most, count):
    """Ten blocks: what all share, 3 · 10 · 10 bytes for results, and 1000 for each that is computed."""
    assert memory.at_once(NEEDS, 10, 3, most, "work") == count


def test_one_block_must_fit():
    says = "work need 1 kB of memory (1 kB while one is computed), but only 1 kB is available"
    with pytest.raises(InputError, match=re.escape(says)):
        memory.at_once(NEEDS, 10, 3, 1399, "work")


def test_a_limit_changes_no_bits():
    problem = gb.problems.named("uniform-2", horizon=60)
    todo = work("lstm", problem, instances=256)
    needs = todo.needs(todo.kernel(blocks.workers(devices=4)))
    limit = AT_REST + needs.total(todo.blocks, 1) + needs.block // 2
    assert len(todo.workers(blocks.workers(devices=4, memory=limit))) == 1
    assert len(todo.workers(blocks.workers(devices=4))) == 4
    bounded, free = (
        gb.estimate("lstm", problem, instances=256, devices=4, memory=given) for given in (limit, None)
    )
    assert bounded.mean.tobytes() == free.mean.tobytes()


def test_the_impossible_is_refused_before_anything_is_compiled():
    """A single run of so many rounds takes 1.2 kB a round, more than a gigabyte."""
    problem = gb.problems.named("uniform-2", horizon=10**6)
    before = surrogate.differentiate._cache_size()
    says = r"need (\d\.\d) GB of memory \(\1 GB while one is computed\), but only 400.0 MB is available"
    with pytest.raises(InputError, match=says):
        gb.learn("lstm", problem, recipe="paper", instances=4, memory="1GB")
    assert surrogate.differentiate._cache_size() == before
    with pytest.raises(InputError, match="memory must be above 600.0 MB, which Python, JAX and"):
        gb.evaluate(["softelim"], "two-point", memory="500MB")


PROGRAM = """
import sys
import gradband as gb
from gradband.engine import memory
seen = []
original = memory.at_once
def counted(*arguments):
    seen.append(original(*arguments))
    return seen[-1]
memory.at_once = counted
problem = gb.problems.named("uniform-2", horizon=2000)
settings = {"recipe": "paper", "iterations": 3, "instances": 256, "curriculum": [], "devices": 8}
gb.learn("lstm", problem, **settings, memory=sys.argv[1] or None)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(max(seen), int(peak.split()[1]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
@pytest.mark.parametrize(("limit", "workers"), [("700MB", 1), ("800MB", 2), ("1GB", 5), ("", 8)])
def test_a_process_keeps_its_limit(limit, workers):
    """A block of this LSTM takes 78 MB."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, limit], capture_output=True, text=True, check=True)
    at_once, peak = map(int, ran.stdout.split())
    assert at_once == workers
    assert peak < memory.parse(limit or "1.3GB")
