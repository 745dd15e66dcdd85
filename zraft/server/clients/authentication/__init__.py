"""Authentication of clients, whichever protocol they speak."""
