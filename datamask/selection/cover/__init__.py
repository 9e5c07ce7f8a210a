"""Coverage: the choice must explain the pool, or a target, and quality decides among what explains them equally well.

    coverage(p) = Σ_j t_j log Σ_i w_i A_ij − the same for the whole pool,    w_i = p_i b_i / Σ p b

Read in this order: `ngrams` (a text's hashed words), `atoms` (documents × atoms, and t), `target` (texts to explain),
`tangent` (the fractional optimum with its bound, for every metric whose state is linear in the mask), `search` (from
there to a mask, by exact gains), `stage` (the pipeline's file of a shard's n-grams), `rounds` with `exchange` (all of
it for a corpus that no process holds). `compiled` holds the inner loops.
"""
