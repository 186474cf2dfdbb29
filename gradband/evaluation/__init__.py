"""Evaluation of policies: paired comparisons, the gain over defaults, explanations."""
