"""`.ci/release`: builds both distributions from a commit, checks them as users get them, and writes what goes with them."""
