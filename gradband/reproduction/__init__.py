"""The paper's experiments: what they are, the work they need, and what comes out beside the paper."""
