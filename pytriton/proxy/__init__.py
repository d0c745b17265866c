"""Public types of inference callables: requests and responses, their validation, and tracing."""
