"""Connections that speak the native protocol: MessagePack, dictionaries, tails and topics."""
