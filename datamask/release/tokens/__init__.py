"""A release as a trainer reads it: tokenised, each document as often as it was chosen, shuffled over everything."""

from datamask.release.tokens.check import verify_tokens
from datamask.release.tokens.layouts import LAYOUTS
from datamask.release.tokens.write import TokenOptions, Tokens, write_tokens

__all__ = ["LAYOUTS", "TokenOptions", "Tokens", "verify_tokens", "write_tokens"]
