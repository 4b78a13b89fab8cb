"""What a session is, folded from its journal."""
