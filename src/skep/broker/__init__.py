"""What the broker does, one package for each topic.

The words are those of the routes, the SQL folders and the tests: who knows the topic knows the
path. A hot topic has `accept` (what a request must be, and how it enters the engine) and `execute`
(what one call does with a batch of requests). At the root lies what several topics share:
`directory` (names to ids), `timestamps`, `paging` and `polling_loop`.
"""
