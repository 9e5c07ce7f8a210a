"""Documents that are copies of others: near-duplicates, and texts contained in longer ones.

`shingles` (what texts are compared by), `signatures` (the stage that reads each shard once), `postings` and
`duplicate_candidates` (pairs worth reading), `verify_pairs` (reads them whole), `altered` and `intact` (which copy is
intact), `resolve` (who stays), `duplicates` (all of it).
"""
