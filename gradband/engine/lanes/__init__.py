"""Lanes: compiles a function of one instance, traced by JAX, to a kernel with one instance per vector lane.

Read `writer` first (numbers and instructions), then `arrays`, `entries`, `rules` and `control` (JAX's
operations), then `program`, `compiler` and `kernel` (assembly, machine code and calls). Nothing here knows
about bandits.
"""
