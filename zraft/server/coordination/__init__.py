"""What is special about the coordination group (group 0): founding, members, sessions and leadership. Pure."""
