"""Stage 1, read: from files as they are to shards of documents, every row accounted for."""
