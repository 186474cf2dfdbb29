"""Assembly as machine code for this processor: compiled by LLVM, kept on disk, linked into memory."""

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import llvmlite.binding as llvm

from gradband.engine.lanes import store

_numbers = itertools.count()  # the linker wants a name for each kernel


def is_fit() -> bool:
    """Whether this processor multiplies and adds in one step; without that, kernels would be slow."""
    return llvm.get_host_cpu_features().get("fma", True)


@cache
def machine() -> tuple[str, str]:
    """The name of this processor, and what it can do."""
    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    # AMD's processors take longer to gather than to read entries one by one.
    gathers = ",+prefer-no-gather" if name.startswith("znver") else ""
    return name, f"{features},-prefer-256-bit{gathers}"


def target() -> Any:
    """This processor as LLVM knows it."""
    return _target(2 if _is_optimised() else 0)


def _is_optimised() -> bool:
    """Whether code should be fast. Code for brief runs need not be (JAX has an option for that), and
    compiles in half the time."""
    return not jax.config.values["jax_disable_most_optimizations"]


@cache
def _target(effort: int) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = machine()
    default = llvm.Target.from_default_triple()
    return default.create_target_machine(cpu=cpu, features=features, opt=effort, jit=True)


@cache
def _linker() -> Any:
    return llvm.create_lljit_compiler(_target.__wrapped__(2), use_jit_link=False)


def compiled(text: str) -> bytes:
    """Assembly as object code. One pass drops dead code; more passes made kernels slower."""
    chosen = target()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = chosen.triple, str(chosen.target_data)
    passes = llvm.create_new_module_pass_manager()
    passes.add_aggressive_dce_pass()
    passes.run(module, llvm.create_pass_builder(chosen, llvm.create_pipeline_tuning_options(speed_level=2)))
    return bytes(chosen.emit_object(module))


def functions(text: str, *names: str) -> Any:
    """The functions of an assembly with loops, by name; from disk if they were compiled before."""
    return linked(kept(text, lambda: _optimised(text)), *names)


def _optimised(text: str) -> bytes:
    """Assembly as object code after the usual passes for loops. What is a vector, it says itself."""
    chosen = target()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = chosen.triple, str(chosen.target_data)
    how = llvm.create_pipeline_tuning_options(speed_level=2)
    how.loop_vectorization = how.slp_vectorization = False
    builder = llvm.create_pass_builder(chosen, how)
    builder.getModulePassManager().run(module, builder)
    return bytes(chosen.emit_object(module))


def kept(given: str, make: Callable[[], bytes]) -> bytes:
    """The code for this machine that `make` compiles from what is given, from disk if it is there."""
    return store.stored((given, *machine(), *(() if _is_optimised() else ("not optimised",))), make)


def linked(code: bytes, *names: str) -> Any:
    """Object code in memory: the addresses of these functions by name, valid while this is kept."""
    library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in names:
        library = library.export_symbol(name)
    return library.link(_linker(), f"kernel{next(_numbers)}")
