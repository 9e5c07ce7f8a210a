"""The throw-away server's process: Prefect's server, until the process that began it ends it, or is gone.

Run by its path, as `python -P throwaway.py PORT`, with a pipe as standard input whose other end the beginner holds: the
kernel closes it however the beginner ends, so a run that was killed leaves no server behind.
"""

import gc
import os
import signal
import sys
import threading

gc.disable()  # what is loaded stays; looking for garbage among it takes half a second
import uvicorn  # noqa: E402
from prefect.server.api.server import create_app  # noqa: E402


def end_with_the_run() -> None:
    """Ends this process, the server, when the other end of its standard input closes: when the run has ended."""
    os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter ends
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_run, daemon=True).start()
    app = create_app()
    gc.freeze()
    gc.enable()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical", lifespan="on")
