"""Texts as what measures read: UTF-8 into code points, normal forms, letters, words and their hashes.

`utf8` (a column as bytes), `text_hashes` (equal texts), `unescape`, `letters`, `laid_texts`, `surface` (what copies are
compared by), `ngrams` (hashed words), `word_tokens` (tokens by words), `language_groups` (which texts are of one
language), `batch_words` (what the content score reads), `rule_words` (what the published rules count).
Each has its compiled loops in a module beside it, so that importing it does not wait for the compiler.
"""
