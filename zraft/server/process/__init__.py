"""The server as a process: asyncio, threads, files and sockets. The only room of the server that is not pure."""
