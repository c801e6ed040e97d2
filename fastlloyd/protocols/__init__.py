"""Roles and messages of every protocol: coroutines that only send, receive and record."""
