"""What all programs of this distribution share: logs, ports that listen, small HTTP services, command groups."""
