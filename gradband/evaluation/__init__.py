"""What a policy is worth: paired comparisons, the gain over defaults, explanations."""

from gradband.core import jax_setup as jax_setup
