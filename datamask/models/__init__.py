"""What encoders and quality share: models loaded once, pinned by content, run in batches of tokens."""
