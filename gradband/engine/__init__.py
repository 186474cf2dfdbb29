"""Plays policies on blocks of instances: the same bits on any number of cores and machines."""

from gradband.core import jax_setup as jax_setup
