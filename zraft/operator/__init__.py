"""What operators ask of a running cluster: requests, their bytes, and the client that carries them."""
