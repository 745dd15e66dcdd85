"""What commands that list something print: tables that fit the terminal, JSON, once or again and again."""
