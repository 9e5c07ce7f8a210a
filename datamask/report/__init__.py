"""Look and decide: the report page, the sweep over λ, the ablation.

Read in this order: `statistics`, `embedding_sample` (what is read), `findings` and `examples` (what is computed),
`charts`, `themes` and `page` (what is drawn), `report` (the stage). Nothing heavy is imported before it is used.
"""
