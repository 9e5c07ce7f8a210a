"""Look and decide: the report page, the sweep over λ, the ablation and its proxy model."""
