"""Where sessions are kept: the contract, its back ends, and the way from an address to a store."""
