"""The client library: a replicated dictionary, an asyncio and a blocking client, recipes."""
