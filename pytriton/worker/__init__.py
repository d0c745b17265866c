"""The half of the data path that runs in the user's process."""
