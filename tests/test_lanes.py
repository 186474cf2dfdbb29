"""Lanes: kernels agree with JAX on operations, and with XLA on whatever the library computes."""

import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from every_policy import ALL, TABLES, learned

import gradband as gb
from gradband.core import prng, resources
from gradband.core.errors import InputError
from gradband.core.statistics import Mean
from gradband.engine import engines, identity, measure
from gradband.engine.lanes import compiler, maths, program, store
from gradband.engine.lanes.kernel import Kernel
from gradband.gradient import estimator

RNG = np.random.default_rng(0)
SMALL, LARGE = 5, 40  # entries in registers, and in memory


def played(function, *operands, count=40, threads=1):
    """What a kernel gives of a function of operands and an instance's number, for all instances."""

    def leaves(*given):
        return [leaf[..., None] for leaf in jax.tree.leaves(function(*given))]

    found = Kernel(leaves, operands)(operands, 0, count, threads)
    return found[0] if len(found) == 1 else found


def expected(function, *operands, count=40):
    return jax.vmap(lambda number: function(*operands, number), out_axes=-1)(jnp.arange(count))


def noise(number, size):
    """Numbers that differ between instances, made by whole numbers so that all engines have the same."""
    return ((jnp.arange(size) * 7919 + number * 104729) % 1009).astype(jnp.float32) / 1009 - 0.4


def key_of(number):
    words = jnp.stack([jnp.uint32(3), number.astype(jnp.uint32)])
    return jax.random.wrap_key_data(words, impl="threefry2x32")


OPERATIONS = {
    "reductions": lambda x, k: (x.sum(), x.max(), x.min(), x.prod(), (x > 0).any(), (x > 2).all()),
    "places": lambda x, k: (x.argmax(), x.argmin(), jnp.where(x > 0.3, jnp.nan, x).argmax()),
    "running": lambda x, k: (
        jnp.cumsum(x),
        jax.lax.cumsum(x, reverse=True),
        jax.lax.cummax(x),
        jax.lax.cummin(x, reverse=True),
    ),
    "moves": lambda x, k: (
        x[::-1],
        x[1:-1:2],
        jnp.roll(x, 2),
        jnp.tile(x, 2),
        jnp.stack([x, -x]).T,
        x.reshape(1, -1),
    ),
    "joins": lambda x, k: (jnp.concatenate([x, jnp.ones(3), x]), jnp.pad(x, (2, 1)), jnp.split(x, [2])[1]),
    "joins nothing": lambda x, k: jnp.concatenate([x, jnp.ones(0), x[::-1]]),
    "tables": lambda x, k: (x[:, None] * x[None], (x[:, None] - x[None]).max(1), jnp.outer(x, x).sum(0)),
    "products": lambda x, k: (
        jnp.outer(x, x + 1) @ x,
        x @ x,
        jnp.einsum("i,ij->j", x, jnp.outer(x, x)),
        jnp.einsum("bi,bij->bj", jnp.stack([x, -x]), jnp.stack([jnp.outer(x, x), jnp.outer(x, 1 - x)])),
    ),
    "picks": lambda x, k: (
        x[k % 3],
        x[k % 9],
        x.at[k % 9].get(mode="clip"),
        jax.lax.dynamic_slice(x, (k,), (3,)),
    ),
    "rounding": lambda x, k: (
        jnp.round(9 * x),
        jnp.floor(9 * x),
        jnp.ceil(9 * x),
        jnp.sign(x),
        abs(x),
        x**3,
        x**-2,
    ),
    "whole": lambda x, k: (
        (9 * x).astype(int) // 2,
        (90 * x).astype(int) % 7,
        k << 3,
        -k >> 1,
        ~k,
        k ^ 5,
        abs(-k),
    ),
    "fractions cut off": lambda x, k: (
        (x * 1e10).astype(int),
        (x * 2e10).astype(jnp.uint32),
        jnp.where(x > 0.3, jnp.nan, x * 9).astype(int),
    ),
    "shifts": lambda x, k: (
        (k.astype(jnp.uint32) + 7) << k.astype(jnp.uint32),
        jnp.uint32(2**31) >> jnp.uint32(k),
    ),
    "not numbers": lambda x, k: (
        jnp.maximum(jnp.where(x > 0, jnp.nan, x), 0),
        jnp.minimum(0, jnp.log(x)),
        jnp.clip(jnp.sqrt(x), 0.1, 0.3),
        jnp.isfinite(1 / (x - x[0])),
    ),
    "choices": lambda x, k: (
        jax.lax.cond(k % 2 == 0, lambda y: y + 1, lambda y: -y, x),
        jax.lax.switch(k % 3, [jnp.sin, jnp.negative, jnp.square][1:] + [jnp.abs], x),
        jax.lax.select_n(k % 3, x, x + 1, x + 2),
    ),
    "loops": lambda x, k: (
        jax.lax.scan(lambda c, y: (c * 0.5 + y, c.sum()), x, jnp.stack([x, x + 1, -x])),
        jax.lax.fori_loop(0, 4, lambda i, c: c + i * x, x),
        jax.lax.while_loop(lambda c: c[0] < 3 + k, lambda c: (c[0] + 1, c[1] * 0.9 + x), (jnp.int32(0), x)),
        jax.lax.scan(lambda c, y: (c + y, c), x[0], x, reverse=True),
        # The same place in all lanes, of what is in memory, what is computed there, and what takes longer.
        jax.lax.fori_loop(0, 5, lambda i, c: c + jax.lax.dynamic_slice(jnp.cumsum(x), (i,), (2,)), x[:2]),
        jax.lax.fori_loop(0, 5, lambda i, c: c * jax.lax.dynamic_slice(1 + x, (i,), (2,)), x[:2]),
        jax.lax.fori_loop(0, 5, lambda i, c: c + jax.lax.dynamic_slice(jnp.exp(x), (i,), (2,)), x[:2]),
    ),
    "random": lambda x, k: (
        jax.random.uniform(key_of(k), x.shape),
        jax.vmap(jax.random.uniform)(jax.random.split(key_of(k), x.size)),
        jax.random.randint(key_of(k), (3,), 0, 10),
    ),
}


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.brief
def test_operations_are_those_of_jax(name, size):
    def function(number):
        return OPERATIONS[name](noise(number, size), number)

    with jax.numpy_rank_promotion("allow"):
        ours, theirs = played(function), expected(function)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


FORMULAS = {
    "exp": (np.exp, np.linspace(-87, 88, 4001), 2),
    "log": (np.log, np.concatenate([np.geomspace(1e-40, 1e38, 4001), np.linspace(0.5, 2, 4001)]), 2),
    "log1p": (np.log1p, np.concatenate([np.linspace(-0.999, 3, 4001), np.geomspace(1e-20, 1, 999)]), 3),
    "expm1": (np.expm1, np.concatenate([np.linspace(-20, 20, 4001), np.geomspace(1e-20, 1, 999)]), 4),
    "logistic": (scipy.special.expit, np.linspace(-80, 80, 4001), 4),
    "tanh": (np.tanh, np.linspace(-12, 12, 4001), 6),
    "erf_inv": (scipy.special.erfinv, np.linspace(-0.9999, 0.9999, 4001), 8),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_have_errors_of_a_few_units_in_the_last_place(name):
    truth, x, most = FORMULAS[name]
    x = x.astype(np.float32)
    padded = np.resize(x, -(-x.size // 16) * 16)
    found = played(lambda table, number: getattr(jax.lax, name)(table[number]), padded, count=x.size)
    right = truth(x.astype(np.float64))
    off = np.abs(found - right) / np.spacing(np.abs(right).astype(np.float32))
    assert off.max() <= most, (x[off.argmax()], off.max())


def test_gamma_and_beta_functions():
    x = np.concatenate([np.geomspace(1e-6, 1e5, 999), np.linspace(-5.4, 5, 1001)]).astype(np.float32)
    found = played(lambda table, number: jax.lax.lgamma(table[number]), x, count=x.size)
    right = scipy.special.gammaln(x.astype(np.float64))
    scale = np.maximum(1, np.abs(right))
    most = (np.abs(np.asarray(jax.lax.lgamma(x)) - right) / scale).max()
    assert (np.abs(found - right) / scale).max() < 2 * most < 1e-5
    a, b, y = (RNG.permutation(np.geomspace(0.2, 3000, 512)).astype(np.float32) for _ in range(3))
    y = (y / (y + 1)).astype(np.float32)
    found = played(lambda a, b, y, k: jax.lax.betainc(a[k], b[k], y[k]), a, b, y, count=512)
    right = scipy.special.betainc(*(v.astype(float) for v in (a, b, y)))
    most = np.abs(np.asarray(jax.lax.betainc(a, b, y)) - right).max()
    assert np.abs(found - right).max() < 2 * most < 1e-2


# Against XLA

P = gb.priors
PROBLEMS = {
    "two points": gb.problems.named("two-point", horizon=30),
    "beta": gb.Problem(P.Beta(arms=3), horizon=30),
    "many arms": gb.Problem(P.Beta(arms=20), horizon=30),
    "beta rewards": gb.problems.named("beta-10", arms=4, horizon=30),
    "hierarchical": gb.Problem(
        P.Hierarchical(3, a=2.0, b=20.0, strength=99.0, spread=0.5, slope=0.3), horizon=30
    ),
    "gaussian": gb.Problem(P.Gaussian(arms=3), horizon=30),
    "distractors": gb.problems.named("distractors", horizon=30),
    "shapes below 1": gb.Problem(P.Beta(arms=4, a=0.4, b=0.7), horizon=30),
    "a table": gb.Problem(P.Table(RNG.random((40, 3, 30)).astype(np.float32)), horizon=30),
    "means drawn": gb.Problem(P.Drawn(RNG.random((40, 3))), horizon=30),
    "independent noise": gb.Problem(P.Beta(arms=3), horizon=30, noise="independent"),
    "batches": gb.Problem(P.Beta(arms=3), horizon=120, pulls_per_round=12),
    "afterwards": gb.Problem(P.Beta(arms=3), horizon=30, afterwards=50),
    "a sampler": gb.Problem(P.Sampler(lambda key: jax.random.uniform(key, (4,)) ** 2, arms=4), horizon=30),
}


def assert_same(ours, theirs):
    """Values of instances are the same but for rounding, or else a draw fell the other way: rarely, and
    without a bias."""
    scale = max(1e-3, float(np.abs(theirs).max()))
    differ = np.abs(ours - theirs) > 1e-4 * scale
    assert differ.mean() < 0.01
    if differ.any():
        mean = Mean.of(np.ravel(ours - theirs))
        assert abs(mean.mean) < 5 * mean.se


def compare_regrets(policy, problem, count=300):
    tables = [
        gb.evaluate(policy, problem, instances=count, engine=engine).rows[0] for engine in engines.ENGINES
    ]
    assert_same(tables[0].regrets, tables[1].regrets)
    assert_same(tables[0].rewards, tables[1].rewards)


QUICK = ("softelim", "exp3", "kl-softelim", "ts", "ucb1", "gittins", "index", "optimal-thresholds")


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in ALL if name not in (*QUICK, "lstm"))],
)
@pytest.mark.brief
def test_every_policy_is_evaluated_alike(name):
    compare_regrets(learned(name, arms=3, horizon=30), TABLES.get(name, PROBLEMS["beta"]))


ESTIMATORS = {
    "self": gb.Estimator("self"),
    "none": gb.Estimator("none"),
    "optimal": gb.Estimator("optimal"),
    "leave-one-out": gb.Estimator("leave-one-out"),
    "expected": gb.Estimator("self", returns="expected"),
}
PAIRS = list(zip(PROBLEMS, itertools.cycle(ESTIMATORS)))  # all problems and all estimators
EVERY_PAIR = [
    pair if pair in PAIRS else pytest.param(*pair, marks=pytest.mark.slow)
    for pair in itertools.product(PROBLEMS, ESTIMATORS)
    if pair[0] != "a table" or pair[1] in ("self", "none", "leave-one-out")  # others need means
]


@pytest.mark.parametrize(("name", "how"), EVERY_PAIR)
@pytest.mark.brief
def test_every_problem_and_baseline_has_the_same_gradients(name, how):
    policy = "softelim" if name != "shapes below 1" else "kl-softelim"
    found = [
        gb.estimate(policy, PROBLEMS[name], instances=300, estimator=ESTIMATORS[how], engine=engine)
        for engine in engines.ENGINES
    ]
    assert_same(found[0].per_instance, found[1].per_instance)
    assert_same(found[0].regrets, found[1].regrets)


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", [name for name in gb.policies.POLICIES if name != "lstm"])
def test_every_policy_on_every_problem(name, problem):
    with contextlib.suppress(InputError):  # those that XLA refuses too
        gb.evaluate(name, PROBLEMS[problem], instances=20, engine="xla")
        compare_regrets(name, PROBLEMS[problem])


# Bits


def one_instance(policy="softelim", problem="beta"):
    problem = jax.device_put(PROBLEMS[problem])
    bound = gb.policies.named(policy).bind(problem.arms, problem.horizon)
    job = measure.regret_job(bound, problem, bound.init(None), prng.root(0), 100)
    spec = dataclasses.replace(job.settings[0], size=1)
    return functools.partial(job.function.__wrapped__, spec), job.operands


@pytest.mark.parametrize(
    ("width", "cpu"), [(8, ""), (32, ""), (64, ""), (16, "x86-64-v3"), (16, "x86-64-v4")]
)
def test_bits_do_not_depend_on_width_or_machine(monkeypatch, width, cpu):
    function, operands = one_instance()
    usual = Kernel(function, operands)(operands, 0, 100, 1)
    if cpu and (cpu == "x86-64-v3" or "+avx512f" in compiler.machine()[1]):
        target = compiler.llvm.Target.from_default_triple().create_target_machine(cpu=cpu, opt=2, jit=True)
        monkeypatch.setattr(compiler, "target", lambda: target)
        monkeypatch.setattr(compiler, "machine", lambda: (cpu, ""))
    monkeypatch.setattr(program, "WIDTHS", {np.inf: width})
    found = Kernel(function, operands)(operands, 0, 100, 1)
    for one, other in zip(usual, found, strict=True):
        assert one.tobytes() == other.tobytes()


def test_bits_do_not_depend_on_how_much_is_optimised(monkeypatch):
    codes, results = [], []
    monkeypatch.setattr(store, "stored", lambda given, make: codes.append(make()) or codes[-1])
    function, operands = one_instance("kl-softelim")
    for brief in (False, True):
        jax.config.update("jax_disable_most_optimizations", brief)  # every test begins by setting it
        results.append(Kernel(function, operands)(operands, 0, 100, 1))
    assert len(codes[1]) > 1.3 * len(codes[0])
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_bits_do_not_depend_on_threads(threads):
    usual, found = (
        gb.evaluate("ts", PROBLEMS["beta"], instances=333, devices=n).rows[0] for n in (1, threads)
    )
    assert usual.regrets.tobytes() == found.regrets.tobytes()


@pytest.mark.brief
def test_bits_do_not_depend_on_who_else_calls():
    function, operands = one_instance()
    kernel = Kernel(function, operands)
    usual = [x.tobytes() for x in kernel(operands, 0, 100, 1)]

    def often(_):
        found = (kernel(operands, 0, 100, 3) for _ in range(40))
        return all([x.tobytes() for x in results] == usual for results in found)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(often, range(4)))
    assert often(0)  # alone, so that the team plays


@pytest.mark.brief
@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("pace", [0.0, 1.0])  # by the team, or by Python's threads
def test_a_forked_process_has_threads_of_its_own(pace):
    function, operands = one_instance()
    kernel = Kernel(function, operands)
    usual = [x.tobytes() for x in kernel(operands, 0, 100, 1)]

    def again():
        kernel.pace = pace
        return kernel(operands, 0, 100, 2)

    again()
    child = os.fork()
    if not child:
        signal.alarm(60)  # a child that waits for threads which it does not have is ended
        found = [again() for _ in range(3)]
        os._exit(not all([x.tobytes() for x in results] == usual for results in found))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Choosing an engine


class Sorting(gb.policies.Counting, gb.policies.OneParameter):
    """Lanes do not sort."""

    name = "sorting"

    def log_probs(self, params, state):
        ranks = jnp.argsort(jnp.argsort(state.means)) * params["theta"]
        return jax.nn.log_softmax(ranks.astype(float))


Sorting = dataclasses.dataclass(frozen=True, kw_only=True)(Sorting)


@pytest.mark.brief
def test_what_lanes_do_not_know_goes_to_xla_and_is_said(caplog):
    with caplog.at_level(logging.INFO, logger="gradband"):
        gb.evaluate([Sorting(), "greedy"], PROBLEMS["two points"], instances=20)
    assert "play sorting: left to XLA: the operation sort" in caplog.text
    assert "play greedy: in lanes" in caplog.text
    with pytest.raises(InputError, match="lanes do not support this program"):
        gb.evaluate(Sorting(), PROBLEMS["two points"], instances=20, engine="lanes")
    with pytest.raises(InputError, match="this needs the engine xla"):
        gb.estimate("lstm", PROBLEMS["two points"], instances=20, engine="lanes")
    with pytest.raises(InputError, match="unknown engine"):
        gb.evaluate("greedy", PROBLEMS["two points"], instances=20, engine="turbo")


def test_the_environment_names_an_engine(monkeypatch, caplog):
    monkeypatch.setenv(engines.VARIABLE, "xla")
    with caplog.at_level(logging.INFO, logger="gradband"):
        gb.evaluate("uniform", gb.problems.named("two-point", horizon=7), instances=20)
    assert "in lanes" not in caplog.text


# What can go wrong


class Endless(gb.policies.Counting):
    """Waits for what never comes."""

    name = "endless"

    def log_probs(self, params, state):
        found = jax.lax.while_loop(lambda x: x < 1, lambda x: x * 0.5, state.pulls.sum())
        return jnp.full(self.arms, -jnp.log(float(self.arms))) + 0 * found


Endless = dataclasses.dataclass(frozen=True, kw_only=True)(Endless)


def test_a_loop_without_end_has_an_error(monkeypatch):
    with pytest.raises(InputError, match="did not end within"):
        gb.evaluate(Endless(), gb.problems.named("two-point", horizon=5), instances=20, engine="lanes")


INTERRUPTED = """
import sys, gradband as gb
problem = gb.Problem(gb.priors.Beta(arms=10), horizon=20_000)
gb.evaluate("ts", problem, instances=20)
print("ready", flush=True)
gb.evaluate("ts", problem, instances=1_000_000)
"""


def test_an_interruption_ends_a_kernel_at_once():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout.readline() == b"ready\n"
    time.sleep(1)
    began = time.perf_counter()
    os.kill(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in errors
    assert time.perf_counter() - began < 3  # .5 s on a machine with nothing else to do


# On disk


def test_kernels_are_kept_and_damage_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def make():
        made.append(1)
        return b"code" * 100

    assert store.stored(("text", "cpu"), make) == store.stored(("text", "cpu"), make) == b"code" * 100
    assert len(made) == 1
    store.stored(("text", "another cpu"), make)
    assert len(made) == 2
    for file in (tmp_path / "gradband" / "kernels").iterdir():
        data = bytearray(file.read_bytes())
        data[50] ^= 1
        file.write_bytes(data)
    assert store.stored(("text", "cpu"), make) == b"code" * 100
    assert len(made) == 3
    monkeypatch.setenv(resources.NO_CACHE, "1")
    store.stored(("text", "cpu"), make)
    assert len(made) == 4


def test_a_program_of_the_library_is_not_traced_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    function, operands = one_instance()
    first = Kernel(function, operands, "a name")(operands, 0, 100, 1)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "make_jaxpr", None)
        again = Kernel(function, operands, "a name")(operands, 0, 100, 1)
    unnamed = Kernel(function, operands)(operands, 0, 100, 1)
    for found in (again, unnamed):
        assert [x.tobytes() for x in found] == [x.tobytes() for x in first]


def test_names_of_programs_differ_with_all_that_decides_them():
    def name(policy="softelim", prior=None, **settings):
        problem = gb.Problem(prior or gb.priors.Beta(arms=3), **{"horizon": 20} | settings)
        bound = gb.policies.named(policy) if isinstance(policy, str) else policy
        bound = bound.bind(problem.arms, problem.horizon)
        params = {} if policy == "ts" else bound.init(None)
        job = measure.regret_job(bound, problem, params, prng.root(0), 100)
        return identity.name_of(job.function, job.settings, job.operands)

    names = [
        name(),
        name(horizon=21),
        name(noise="independent"),
        name(pulls_per_round=2),
        name(afterwards=7),
        name(prior=gb.priors.Beta(arms=4)),
        name(prior=gb.priors.Gaussian(arms=3)),
        name("exp3"),
        name("ucb1"),
    ]
    assert len(set(names)) == len(names)
    assert None not in names
    assert name() == names[0]
    assert name(prior=gb.priors.Beta(arms=3, a=2.0, b=3.0)) == names[0]  # numbers are operands
    estimates = [
        gradient_job(
            gb.policies.SoftElim().bind(3, 20), gb.Problem(gb.priors.Beta(arms=3), horizon=20), how
        )
        for how in (gb.Estimator("self"), gb.Estimator("none"), gb.Estimator("leave-one-out", rollouts=3))
    ]
    assert len({identity.name_of(job.function, job.settings, job.operands) for job in estimates}) == 3


def gradient_job(policy, problem, how):
    return estimator.gradient_job(policy, problem, policy.init(None), prng.root(0), 0, 100, how)


def test_programs_with_code_of_ones_own_have_no_name():
    mine = gb.priors.Sampler(lambda key: jax.random.uniform(key, (3,)), arms=3)
    for policy, prior in ((gb.policies.SoftElim(), mine), (Sorting(), gb.priors.Beta(arms=3))):
        bound = policy.bind(3, 20)
        job = measure.regret_job(bound, gb.Problem(prior, horizon=20), bound.init(None), prng.root(0), 100)
        assert identity.name_of(job.function, job.settings, job.operands) is None
    assert identity.name_of(job.function, (RNG.random,), ()) is None  # a method hides its object


def test_a_folder_that_others_can_write_to_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "gradband" / "kernels"
    store.stored(("text",), lambda: b"code")
    folder.chmod(0o777)
    assert store.stored(("text",), lambda: b"made again") == b"made again"
    folder.chmod(0o700)
    assert store.stored(("text",), lambda: b"made again") == b"code"


def test_the_oldest_kernels_go_first(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(store, "MOST_BYTES", 1000)
    for number in range(5):
        store.stored((str(number),), lambda: bytes(300))
        for file in (tmp_path / "gradband" / "kernels").iterdir():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 10))
    assert len(list((tmp_path / "gradband" / "kernels").iterdir())) == 3


def test_exp_of_a_formula_is_that_of_numpy_at_its_edges():
    x = np.array([-np.inf, -200, -87.4, 0, 89, np.inf, np.nan] + [0.0] * 9, np.float32)
    found = played(lambda table, number: jax.lax.exp(table[number]), x, count=7)
    np.testing.assert_array_equal(found, [0, 0, 0, 1, np.inf, np.inf, np.nan])
    y = np.array([-1, 0, np.inf, np.nan, 1e-45, 1.0] + [1.0] * 10, np.float32)
    found = played(lambda table, number: jax.lax.log(table[number]), y, count=6)
    np.testing.assert_allclose(found, [np.nan, -np.inf, np.inf, np.nan, np.log(1e-45), 0], rtol=1e-2)
    assert maths.STEPS > 100
