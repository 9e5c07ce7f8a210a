"""How shards select jointly: candidates, rounds of moment sums, prices, and selections extended by prices."""
