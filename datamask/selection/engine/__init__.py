"""How it is solved: the iteration, projected ascent, dual Newton, swaps, and the limits' dual prices."""
