"""Every knob: how it is named, what it may be, and where its value comes from."""
