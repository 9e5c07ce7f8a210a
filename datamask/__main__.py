"""Where the `datamask` command begins: Ctrl-C is answered before anything is loaded that takes time.

datamask --help
python -m datamask --help
"""

import gc

from datamask.interrupts import INTERRUPTS


def main() -> None:
    """Runs the command line; see `datamask.cli.main`."""
    INTERRUPTS.install()
    gc.disable()  # until the command is loaded, as in `datamask.libraries.no_garbage`
    from datamask.cli import main as run

    run()


if __name__ == "__main__":
    main()
