"""The paper's own method and what it is compared with: policy gradient, facility location, greedy, baselines.

Nothing else of the selection imports these; settings name them (`datamask.extensions.BUILT_IN`).
"""
