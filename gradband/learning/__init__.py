"""Gradient ascent on the Bayes reward: recipes, steps, checkpoints, choices."""
