"""The paper's experiments, and our results beside its numbers."""
