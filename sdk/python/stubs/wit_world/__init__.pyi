"""The contract, as the component of a method has it."""
