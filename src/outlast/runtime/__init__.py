"""Owning sessions in this process, and the handles that callers hold."""
