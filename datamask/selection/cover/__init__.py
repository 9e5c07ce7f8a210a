"""Coverage: the selection's mixture of atoms should match that of the pool or of a target (a negative cross-entropy).

    coverage(p) = Σ_j t_j log Σ_i w_i A_ij − the same for the whole pool,    w_i = p_i b_i / Σ p b

Read in this order: `counting` (n-grams of a shard, and of texts to cover), `atoms` (the matrix A of documents × atoms,
and the target distribution t), `tangent` (the fractional optimum with its bound, for every metric whose state is linear
in the mask), `sharpen` (followed from there to a mask) and `greedy_search` (improved by exact gains), `cover_shards`
(all of it for a corpus that no process holds). `compiled` holds the inner loops.
"""
