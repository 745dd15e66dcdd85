"""The server: the driver that puts log, network and clients in the right order, and its asyncio shell."""
