"""The contract under the names that `componentize-py` gives it, for a method that runs as a process of its own.

Behind each function is a request to the host over the connection of `tunebox_native`.
"""
