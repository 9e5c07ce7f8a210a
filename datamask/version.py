"""The version of what is installed, told in every release's manifest."""

__version__ = "0.2.0"
