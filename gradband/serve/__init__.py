"""Serves many tests over HTTP, with durable state. It needs the extra `serve`, and never imports JAX."""
