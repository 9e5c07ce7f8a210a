"""What runs, in which order: a flow a page, and the commands that start them.

`curate` is the whole pipeline, `refresh` the same for what is new since the last release, `ablate` several selections
of one embedded corpus. `stage_runs` drives tasks on the engine that `engine` chose, `artifacts` is what the UI shows of
a run, `console` what a terminal shows, `commands` the command line.
"""

from datamask.layers import claim_packages

claim_packages()  # `import tasks` in the modules here is datamask's, beside whatever tasks.py the user may have
