"""Evaluates policies: paired comparisons, gains over the usual policies, explanations."""

from gradband.core import jax_setup as jax_setup
