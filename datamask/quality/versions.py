"""Versions of the scores, which are in their keys."""

CONTENT_VERSION = 13  # raised when a measure, a term or the score changes
HEURISTIC_VERSION = 2  # raised when a rule, a signal or the score changes
