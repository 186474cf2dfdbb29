"""Plays a policy in production. It needs NumPy alone."""
