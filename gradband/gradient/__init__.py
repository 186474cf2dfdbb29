"""The reward gradient of a policy: its estimator, baselines, and imitation."""
