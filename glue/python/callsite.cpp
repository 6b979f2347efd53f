// Which Python line is running: looked up by its instruction, which stays valid because each code
// object that was ever named is kept. Up to Python 3.11 that needs no GIL; later interpreters keep
// their frames to themselves, and the public functions need it.
#include "dispatch/dispatch.h"

#include <Python.h>
#ifndef TT_PUBLIC_FRAMES
#define TT_PUBLIC_FRAMES (PY_VERSION_HEX >= 0x030C0000)
#endif
#if !TT_PUBLIC_FRAMES
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#endif
#include <pybind11/pybind11.h>

#include <array>
#include <unordered_set>

namespace tt {
namespace {

enum : size_t { kSlots = 512, kMaxDepth = 64, kMaxKept = 65536 };

struct CodeSlot {
  PyCodeObject* code = nullptr;
  bool library = false;
};
struct SiteSlot {
  PyCodeObject* code = nullptr;
  int offset = 0;  // of the instruction, in bytes
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

uint32_t add_site(PyCodeObject* code, int offset) {
  pybind11::gil_scoped_acquire gil;
  int line = PyCode_Addr2Line(code, offset);
  const char* function = PyUnicode_AsUTF8(code->co_name);
  if (!function) PyErr_Clear();
  return tt_site_add(file_of(code).c_str(), line, function ? function : "?");
}

uint32_t site_of(PyCodeObject* code, int offset) {
  SiteSlot& slot = sites[(slot_of(code) + static_cast<size_t>(offset)) % kSlots];
  if (slot.code == code && slot.offset == offset) return slot.site;
  uint32_t site = add_site(code, offset);
  if (is_kept(code)) slot = {code, offset, site};
  return site;
}

unsigned long main_thread;

// Asked by threads that wait: only Python's main thread runs signal handlers, and what one raises
// stays set until check() throws it.
bool is_interrupted() {
  if (PyThread_get_thread_ident() != main_thread) return false;
  pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

}  // namespace

#if TT_PUBLIC_FRAMES

uint32_t call_site() {
  if (!PyGILState_GetThisThreadState()) return 0;
  pybind11::gil_scoped_acquire gil;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  uint32_t site = 0;
  for (size_t depth = 0; frame && depth < kMaxDepth && !site; depth++) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (!is_library(code)) site = site_of(code, PyFrame_GetLasti(frame));
    Py_DECREF(code);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  Py_XDECREF(frame);
  return site;
}

#else

uint32_t call_site() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (!thread || !thread->cframe) return 0;
  _PyInterpreterFrame* frame = thread->cframe->current_frame;
  for (size_t depth = 0; frame && depth < kMaxDepth; depth++, frame = frame->previous) {
    if (is_library(frame->f_code)) continue;
    auto offset = (frame->prev_instr - _PyCode_CODE(frame->f_code)) * sizeof(_Py_CODEUNIT);
    return site_of(frame->f_code, static_cast<int>(offset));
  }
  return 0;
}

#endif

void watch_interrupts() {
  auto threading = pybind11::module_::import("threading");
  main_thread = threading.attr("main_thread")().attr("ident").cast<unsigned long>();
  tt_interrupt_set_check(is_interrupted);
}

}  // namespace tt
