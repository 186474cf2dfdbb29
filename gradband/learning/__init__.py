"""Gradient ascent on the Bayes reward: recipes, steps, checkpoints, choice of parameters."""

from gradband.core import jax_setup as jax_setup
