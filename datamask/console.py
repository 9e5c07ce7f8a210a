"""Where the commands print: words stay as they are written. Paths, sources and topics may hold what rich takes for
markup ("[a]") or for the name of an emoji (":car:")."""

from functools import partial

from rich.console import Console

new_console = partial(Console, highlight=False, markup=False, emoji=False)
