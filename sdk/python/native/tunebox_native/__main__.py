"""`python -m tunebox_native MODULE SOURCE MANIFEST`: serves the host whose socket `TUNEBOX_TWIN` names.

MODULE is the method's module in the folder SOURCE, MANIFEST the text of its manifest.
"""

import os
import socket
import sys

from tunebox.component import Training, load
from tunebox_native.connection import HostEnded, connect
from tunebox_native.serve import serve
from tunebox_native.values import text


def main() -> None:
    """Loads the method, sends its manifest to the host, and serves it to its end. Exits with 1 if the host stops it."""
    module, source, manifest = sys.argv[1:]
    sys.path.append(source)
    load(module)
    said = sys.stderr
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(os.environ["TUNEBOX_TWIN"])
    connection = connect(stream)
    try:
        connection.send(text(manifest))
        serve(connection, Training())
    except HostEnded as ended:
        said.write(f"tunebox twin: {ended}\n")
        sys.exit(1)


main()
