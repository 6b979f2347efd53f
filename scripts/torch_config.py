"""Prints a CMake list: PyTorch's version, its C++ ABI flag, its library and include folders."""

import torch
from torch.utils.cpp_extension import include_paths, library_paths

version = torch.__version__.split("+")[0]
abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
print(";".join([version, str(abi), library_paths()[0], *include_paths()]))
