"""Mutation testing of the core: which small changes of the source does no test notice?

mutmut makes the changes. The tests are run here, by a plugin of pytest: it collects them once, and tries each change in a
forked process with the tests that call the changed function, so that most changes take a fraction of a second.
"""
