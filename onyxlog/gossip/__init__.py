"""Spreading of the log's entries between peers, so that not each has to read the log.

Pure.

It is simulated with thousands of groups.

The log stays the only source of order. `messenger` is the core. How events spread is a choice:
`pool_spreading` (the default), `plumtree` over `hyparview`, or the thesis' own modes in `rumours`.
"""
