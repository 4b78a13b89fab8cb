"""outlast keeps AI agent sessions alive.

A session comes back after its client, its agent, its runtime or its machine died: with the same id, the same
history, the same queue and the same files, and nothing that already happened happens again.
"""
