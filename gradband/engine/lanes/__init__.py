"""Lanes: a function of one instance, traced by JAX, as a kernel that plays a vector of instances at a time.

Read `writer` first (numbers and instructions), then `arrays`, `rules` and `control` (what becomes of JAX's
operations), then `kernel` (compiling and calling). Nothing here knows of bandits.
"""
