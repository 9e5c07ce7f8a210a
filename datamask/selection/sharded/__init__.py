"""How shards select jointly: candidates, the driver of groups, and pairwise and DiSF by it."""
