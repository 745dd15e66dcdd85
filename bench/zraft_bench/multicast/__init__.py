"""Atomic multicast and streams of topics: the thesis' scenarios and ours, on real servers."""
