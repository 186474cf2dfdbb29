"""The version, alone in a file so that nothing heavy is imported to know it."""

__version__ = "0.1.0"
"""The version of gradband."""
