"""A stage's work as a Prefect task: retries, progress, and a state that says whether there was anything to do.

`stage` has the task, `logs` what stands in its log. The file is the cache (see docs/architecture.md): Prefect's own
cache is off, and work whose file is there ends in a Completed state named Cached.
"""
