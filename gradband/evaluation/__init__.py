"""Evaluation of policies: paired comparisons, the gain over defaults, explanations."""

from gradband.core import jax_setup as jax_setup
