"""`zraft doctor`: what is open, unencrypted, close to a limit or about to expire, and what to do about it."""
