"""The tools a session may have."""
