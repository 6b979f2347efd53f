#!/bin/sh
# Creates or completes the virtual environment; a valid one is left as it is.
# usage: setup_env.sh FOLDER [REQUIREMENTS]
set -eu
venv=${1:?usage: setup_env.sh FOLDER [REQUIREMENTS]}
here=$(dirname "$0")
requirements=${2:-$here/requirements.txt}
plugin=lammps-jax-pjrt-cpu==0.11.2
base=${PYTHON:-python3}

if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "setup_env.sh: $base is not Python 3.11 or newer; name one: make PYTHON=python3.12" >&2
  exit 1
fi
[ -x "$venv/bin/python" ] || "$base" -m venv "$venv"
python="$venv/bin/python"
if "$python" "$here/check_env.py" "$requirements" "$plugin"; then
  exit 0
fi
# To compile every module would take longer than all the rest: Python does it at the first import,
# whose bytecode must be kept, or each process would compile PyTorch anew.
unset PYTHONDONTWRITEBYTECODE
install() { "$python" -m pip install -q --no-compile "$@"; }
# PyPI's Linux wheel of PyTorch brings CUDA along; the CPU wheel is a tenth of it. torchvision's
# operators are in the wheel that fits. Both are named as words of their own.
index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
torch=$(grep -E '^torch(vision)?==' "$requirements" || true)
[ -z "$torch" ] || "$python" -c 'import torch' 2>/dev/null ||
  install --retries 1 $torch --extra-index-url "$index" ||
  install $torch
install -r "$requirements"
install --no-deps "$plugin"
[ -z "$torch" ] || "$python" -c 'import torch._dynamo'
exec "$python" "$here/check_env.py" "$requirements" "$plugin"
