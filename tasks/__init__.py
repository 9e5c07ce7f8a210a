"""One Prefect task per stage: retries, progress, and a state that says whether there was anything to do.

`per_shard` has the stages that run per shard, `corpus` those that see the whole corpus, `batch` what a task that
handles several shards returns, `options` retries and resources, `progress` where a task reports the rows it has done.
The file is the cache (see docs/architecture.md): Prefect's own cache is off, and a stage whose file is there ends in a
Completed state named Cached.
"""
