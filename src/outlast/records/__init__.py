"""What the journal holds: record types, their envelope, how they are stored and read."""
