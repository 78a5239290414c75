"""Work of API processes between requests, in small steps that leave room for requests."""
