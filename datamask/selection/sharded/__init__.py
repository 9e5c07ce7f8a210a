"""How shards select jointly: candidates, sums that are exchanged, prices, and what they lose later."""
