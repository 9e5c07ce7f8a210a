"""Where the commands print: words stay as they are written. Paths, sources and topics may hold what rich takes for
markup ("[a]") or for the name of an emoji (":car:")."""

import sys
from functools import partial

from rich.console import Console

new_console = partial(Console, highlight=False, markup=False, emoji=False)


def wide_console(width: int = 160) -> Console:
    """Prints to stdout, as wide as the terminal, or so many columns where there is none."""
    return new_console(width=None if sys.stdout.isatty() else width)
