"""Dynamic programmes, from numbers to numbers. Numba compiles loops that XLA has no fast form of."""
