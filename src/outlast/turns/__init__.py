"""Turns: one input through to one terminal record, on a living agent or from what a dead one left."""
