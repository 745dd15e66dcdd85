"""What a server tells of itself in numbers and words: statistics, `mntr`, four-letter words. Pure."""
