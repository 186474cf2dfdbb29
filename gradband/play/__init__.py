"""Plays a policy in production. NumPy is all that it needs."""
