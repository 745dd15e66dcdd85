"""Messages of the native protocol: requests by what they are about, answers, and what is pushed."""
