"""The turn: what a server does with what arrived and what is due, in the order in which it must happen. Pure."""
