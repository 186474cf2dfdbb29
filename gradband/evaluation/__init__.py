"""What a policy is worth: paired comparisons, the gain over defaults, explanations."""
