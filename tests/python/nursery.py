"""Forks processes that have PyTorch imported already, which takes longer than most of what they do.

Reads requests from standard input, one JSON list a line: code, environment, and the files that
take standard output and errors. Answers with the process's number, and then with its exit status.
A process that was forked runs the code as `python -c` does, and ends as that does.
"""

import gc
import json
import os
import sys
import types

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # each process loads the package by itself

import torch
import torch._dynamo


def become(request):
    """Makes this process what the request describes; returns the code that it is to run."""
    code, environment, *files = request
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate([os.devnull, *files]):
        with open(path, "wb" if number else "rb") as file:
            os.dup2(file.fileno(), number)
    sys.argv = ["-c"]
    return code


def serve():
    """Forks a process for each request; in that, returns its request. Else ends with the input."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


gc.freeze()  # what is here stays here: collecting is fast from here on
program = compile(become(serve()), "<string>", "exec")
main = sys.modules["__main__"] = types.ModuleType("__main__")
torch._import_device_backends()
exec(program, main.__dict__)
