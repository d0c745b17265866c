"""Models that call models: the handles that callables ask for, and how they reach the server."""
