"""Transport between servers: messages, sealing, datagrams, streams, the UDP socket."""
