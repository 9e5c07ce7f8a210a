"""Embed: documents to vectors of unit length, by an encoder fitted on the corpus or any sentence-transformers model.

encoder = prepare_encoder(shards, config, work)
output = embed_shard(files, encoder, config, work)
counts = load_tokenizer(encoder).count(["some text"])
"""
