"""A method in Python as a process of its own, without a sandbox: for its author's tests.

It asks the same host over a local socket, by the protocol of `runtime/sandbox/src/native` and `sdk/rust/src/native`.
"""
