"""A strict session: no silent rank promotion, and one place for z-scores.

What JAX compiles is kept in the folder of pytest's cache, for all workers, for the commands that tests run
and for the next time: most of the time goes into compiling. XLA's older emitters take a quarter less of it,
and half for a single operation; their results have the same bits, but a learning of the LSTM by them takes
three times as long. A program in one piece takes a tenth less than one that is split for several cores,
which other workers use. Tests marked `brief` compute little, and have it compiled in half the time, to
slower code.
"""

import contextlib
import gc
import importlib
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from gradband.cli import terminal
from gradband.core import jax_setup

assert jax_setup.XLA_OPTIONS in os.environ["XLA_FLAGS"]  # before anything is computed
os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
jax.config.update("jax_numpy_rank_promotion", "raise")
terminal.FIRST_LINE = 3600.0  # a slow machine's tests print what a fast one's do
collect_ignore = ["fuzz.py"]  # which changes what it imports
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs would ignore it
COMPILED = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0,  # operations outside of jit are programs too
}
for setting, value in COMPILED.items():
    jax.config.update(setting, value)
    os.environ[setting.upper()] = str(value)


def pytest_runtest_setup(item):
    brief = item.get_closest_marker("brief") is not None
    jax.config.update("jax_disable_most_optimizations", brief)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(brief).lower()


def pytest_collection(session):
    """Every other worker begins with the last modules: on an empty checkout, each then compiles half of all
    that is imported."""
    whole = all(Path(given).is_dir() for given in session.config.args)
    if whole and os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579":
        for path in sorted(Path(__file__).parent.glob("test_*.py"), reverse=True):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting says what is wrong
                importlib.import_module(path.stem)


LONGEST = (
    "test_docs.py::test_blocks_run",
    "test_reproduce.py::test_all_panels",
    "test_install.py",
    "test_site.py",
)


def pytest_collection_modifyitems(items):
    """What takes longest begins first, so that no worker is left with it in the end."""
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))


def pytest_collection_finish():
    """What was imported stays, and tracing makes objects by the million: collecting them took a
    tenth of the time of tests that write kernels."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


Z = 5.0
"""Largest |z| that passes: a true statement fails once in 1.7 million, for fixed seeds once and for all."""


def assert_z(measured, se, truth, truth_se=0.0):
    """The measured mean agrees with the truth, given both standard errors."""
    z = (np.asarray(measured) - truth) / np.hypot(se, truth_se)
    assert np.all(np.abs(z) < Z), f"{measured} ± {se} is {z} standard errors from {truth} ± {truth_se}"


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory):
    """A cache folder of the tests' own, so that nothing is read that an earlier version wrote."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"  # one for all workers
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def table():
    """Realised rewards of 10 instances, 3 arms and 6 rounds."""
    return np.random.default_rng(0).random((10, 3, 6)).round(3)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Where a policy of some name and settings is saved."""
    from every_policy import learned

    folder = tmp_path_factory.mktemp("policies")

    def path(name, **settings):
        target = folder / f"{name} {settings}.safetensors"
        if not target.exists():
            learned(name, **settings).save(target)
        return target

    return path


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server, where its packages are installed."""
    from serving import start_postgres

    server = start_postgres()
    yield server
    server.close()
