"""The web console: pages on the admin port that show the server, its data, and let who has signed in change them."""
