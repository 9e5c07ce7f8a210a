"""A release as a trainer reads it: tokenised, each document as often as it was chosen, shuffled over everything."""
