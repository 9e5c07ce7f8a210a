"""How it is solved: moments and ascent, dual Newton, swaps, the neighbours' graph, levels."""
