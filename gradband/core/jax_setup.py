"""Sets JAX up before it starts. Every room that computes with JAX imports this first.

Without JAX, importing it raises an error that names the extra. Production never imports it, so playing a
policy changes no environment variable.
"""

import importlib.util
import os

from gradband.core.extras import needs
from gradband.core.resources import private_cache

if importlib.util.find_spec("jax") is None:
    raise needs("learning and evaluating policies", "learn")

# A scan over rounds is hundreds of tiny steps, which XLA runs faster if it compiles them as one function
# with several results per loop. Only this variable can request that, before JAX's first computation. If the
# user has set such flags, they stay.
XLA_OPTIONS = "xla_cpu_small_while_loop_byte_threshold=100000000,xla_cpu_use_multi_output_fusion=true"
_FLAGS = os.environ.get("XLA_FLAGS", "")
if "xla_backend_extra_options" not in _FLAGS:
    os.environ["XLA_FLAGS"] = f"{_FLAGS} --xla_backend_extra_options={XLA_OPTIONS}".strip()


def _keep_compiled() -> None:
    """Keeps compiled programs on disk, so that the next process starts at once, unless the user does."""
    import jax  # only now: the flags come first

    if jax.config.values["jax_compilation_cache_dir"] is None and (folder := private_cache("compiled")):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.03)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


_keep_compiled()
