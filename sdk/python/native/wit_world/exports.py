"""What the host calls. The bindings of a component have a class here that is the base of the method's exports."""


class Training:
    """The base of the exports; adds nothing."""
