"""Records the replies of a server that stops nothing, as an ordinary run of the lab (`cgr serve --shadow`).

A chosen request is answered as a plain one. Behind its reply, the thinking is probed at every interval, and the trace is
written to the store.
"""
