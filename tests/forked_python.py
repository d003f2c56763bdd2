"""Stand in for a Python interpreter that has imported the heavy libraries.

`forked_python.py ADDRESS -u -c CODE` asks the parent of `processes.py` to fork one, which uses this
process's standard streams; both end together. Only the standard library is needed.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

with socket.socket(socket.AF_UNIX) as parent:
    parent.connect(sys.argv[1])
    program = {"code": sys.argv[-1], "arguments": [], "cwd": str(Path.cwd()), "environment": dict(os.environ)}
    socket.send_fds(parent, [json.dumps(program).encode() + b"\n"], [0, 1, 2])
    replies = parent.makefile()
    process, code = json.loads(replies.readline()), None
    for stream in (0, 1):  # close them here, so that their end is visible when the forked process closes them
        os.close(stream)
    while code is None:
        time.sleep(0.1)
        parent.sendall(json.dumps({"poll": process}).encode() + b"\n")
        code = json.loads(replies.readline())
os._exit(code if code >= 0 else 128 - code)
