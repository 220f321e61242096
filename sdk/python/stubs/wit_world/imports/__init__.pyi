"""The interfaces of the contract, a module each."""
