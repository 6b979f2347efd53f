// Which Python line is running: looked up without the GIL by the address of its instruction, which
// stays valid because each code object that was ever named is kept.
#include "dispatch.h"

#define Py_BUILD_CORE 1
#include <Python.h>
#if PY_VERSION_HEX < 0x030C0000
#include <internal/pycore_frame.h>
#endif
#include <pybind11/pybind11.h>

#include <array>
#include <unordered_set>

namespace tt {

#if PY_VERSION_HEX >= 0x030C0000

// Newer interpreters: the public API, which needs the GIL.
uint32_t call_site() { return 0; }

#else

namespace {

enum : size_t { kSlots = 512, kMaxDepth = 64, kMaxKept = 65536 };

struct CodeSlot {
  PyCodeObject* code = nullptr;
  bool library = false;
};
struct SiteSlot {
  const void* instruction = nullptr;
  uint32_t site = 0;
};
thread_local std::array<CodeSlot, kSlots> codes;
thread_local std::array<SiteSlot, kSlots> sites;
std::unordered_set<PyCodeObject*> kept_codes;  // one reference each; guarded by the GIL

size_t slot_of(const void* pointer) { return (reinterpret_cast<uintptr_t>(pointer) >> 4) % kSlots; }

std::string file_of(PyCodeObject* code) {
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (!text) PyErr_Clear();
  return text ? text : "?";
}

// Frames of PyTorch and of this package are not the user's.
bool is_library(PyCodeObject* code) {
  CodeSlot& slot = codes[slot_of(code)];
  if (slot.code == code) return slot.library;
  pybind11::gil_scoped_acquire gil;
  std::string file = file_of(code);
  bool library = file.find("/site-packages/torch/") != std::string::npos ||
                 file.find("/torch_tpu/") != std::string::npos || file.rfind('<', 0) == 0;
  if (kept_codes.size() < kMaxKept && kept_codes.insert(code).second) Py_INCREF(code);
  if (kept_codes.count(code)) slot = {code, library};
  return library;
}

// Only of a code object that is kept may an instruction's address be remembered.
bool is_kept(PyCodeObject* code) { return codes[slot_of(code)].code == code; }

uint32_t add_site(PyCodeObject* code, const _Py_CODEUNIT* instruction) {
  pybind11::gil_scoped_acquire gil;
  auto offset = (instruction - _PyCode_CODE(code)) * static_cast<Py_ssize_t>(sizeof(_Py_CODEUNIT));
  int line = PyCode_Addr2Line(code, static_cast<int>(offset));
  const char* function = PyUnicode_AsUTF8(code->co_name);
  if (!function) PyErr_Clear();
  return tt_site_add(file_of(code).c_str(), line, function ? function : "?");
}

}  // namespace

uint32_t call_site() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!thread || !thread->cframe) return 0;
  _PyInterpreterFrame* frame = thread->cframe->current_frame;
  for (size_t depth = 0; frame && depth < kMaxDepth; depth++, frame = frame->previous) {
    if (is_library(frame->f_code)) continue;
    SiteSlot& slot = sites[slot_of(frame->prev_instr)];
    if (slot.instruction == frame->prev_instr) return slot.site;
    uint32_t site = add_site(frame->f_code, frame->prev_instr);
    if (is_kept(frame->f_code)) slot = {frame->prev_instr, site};
    return site;
  }
  return 0;
}

#endif

}  // namespace tt
