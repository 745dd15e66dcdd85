"""Parts that all programs here share: logs, listening ports, small HTTP services, command groups."""
