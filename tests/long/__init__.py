"""`.ci/long`: what takes longer than `.ci/run`, in pieces that are bounded and can be repeated."""
