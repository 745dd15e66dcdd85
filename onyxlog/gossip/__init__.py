"""How entries of the log reach peers without each of them reading it: pure, and simulated by the thousand.

The log stays the only source of order. `messenger` is the core; how events spread is a choice: `pool_spreading` (the
default), `plumtree` over `hyparview`, and the thesis' own modes in `rumours`.
"""
