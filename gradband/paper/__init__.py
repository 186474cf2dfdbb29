"""The paper's experiments, and what comes out beside its numbers."""
