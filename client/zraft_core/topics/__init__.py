"""Values of topics, their wire forms, and what a producer and a merging consumer decide by them. Pure."""
