"""`memory://`: a store within one process. Nothing of it survives the process.

For tests, for embedding where nothing has to be kept, and as the oracle that other back ends are held
against: as simple as the contract allows.

- `tables`: what a store holds, one atomic step a method
- `store`: the asynchronous face, `outlast.store.contract.Store`
"""
