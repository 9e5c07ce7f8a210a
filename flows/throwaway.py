"""The throw-away server's process: Prefect's server, until the process that began it ends it, or is gone.

Run by its path, as `python -P throwaway.py PORT`, with a pipe as standard input whose other end the beginner holds: the
kernel closes it however the beginner ends, so a run that was killed leaves no server behind.
"""

import os
import signal
import sys
import threading

import uvicorn


def end_with_the_run() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock would be held when the interpreter ends
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_run, daemon=True).start()
    uvicorn.run(
        "prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=int(sys.argv[1]),
        log_level="critical", lifespan="on",
    )  # fmt: skip
