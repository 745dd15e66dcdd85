"""Keys, certificates and passwords: read from files, watched, and used by connections."""
