"""Gradient ascent on the Bayes reward: recipes, steps, checkpoints, choices."""

from gradband.core import jax_setup as jax_setup
