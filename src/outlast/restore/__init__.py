"""Restoring: look, plan, act. Starting a session is the same road with an empty plan."""
