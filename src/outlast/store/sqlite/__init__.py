"""The default store: one SQLite database and a folder of side files, shared by all processes of one machine.

- `store`: the asynchronous face, `outlast.store.contract.Store`
- `reading`: all that only reads, synchronous and quick to import
- `writer`, `engine`, `operations`: group commit, from the event loop down to one transaction
- `incarnation`, `takeover`: who is alive, and how a living owner is ended
- `turnstile`, `doorbell`, `witness`, `blobs`: the side files
"""
