"""kazoo's own test-suite against our servers: what runs it, and what is excused."""
