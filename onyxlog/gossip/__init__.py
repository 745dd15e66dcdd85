"""How entries of the log reach peers without each of them reading the log. Pure; simulated with thousands of groups.

The log stays the only source of order. `messenger` is the core. How events spread is a choice:
`pool_spreading` (the default), `plumtree` over `hyparview`, or the thesis' own modes in `rumours`.
"""
