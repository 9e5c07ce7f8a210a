"""The report: a page to look at a release and decide, its data, and pictures for the dataset card.

Read in this order: `statistics`, `embedding_sample` (what is read), `findings` and `examples` (what is computed),
`charts` and `page` (what is drawn), `report` (the stage). Nothing heavy is imported before it is used.
"""
