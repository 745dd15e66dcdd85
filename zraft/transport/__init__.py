"""What servers say to each other, and how: messages, sealing, datagrams, streams, the UDP socket."""
