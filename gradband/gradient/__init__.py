"""The reward gradient of a policy: its estimator, baselines, and imitation."""

from gradband.core import jax_setup as jax_setup
