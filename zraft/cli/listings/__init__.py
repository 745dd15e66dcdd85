"""The output of commands that list something: tables that fit the terminal, or JSON, once or again and again."""
