"""Datagrams between servers: sealing, packing several messages together, fragmentation, the UDP socket."""
