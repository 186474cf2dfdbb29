"""Dynamic programmes, numbers in and numbers out. Numba compiles loops that XLA cannot make fast."""
