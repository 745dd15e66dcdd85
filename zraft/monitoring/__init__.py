"""Numbers and words of a server about itself: statistics, `mntr`, four-letter words. Pure."""
