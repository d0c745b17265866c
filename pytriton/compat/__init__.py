"""Clients of protocols that servers no longer speak, on top of the one that they do."""
