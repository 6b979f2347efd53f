// Which Python line is running: looked up by its instruction, as long as no code object that was
// looked at has ended. None is kept: what Dynamo compiled lives as long as its code does. Up to
// Python 3.11 that needs no GIL; later interpreters keep their frames to themselves, and the public
// functions need it.
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
#include <atomic>
#include <unordered_map>
#include <unordered_set>

namespace tt {
namespace {

enum : size_t { kSlots = 512, kMaxDepth = 64, kMaxWatched = 65536 };

struct CodeSlot {
  PyCodeObject* code = nullptr;
  uint64_t ended = 0;  // how many had ended when it was looked at
  bool library = false;
};
struct SiteSlot {
  PyCodeObject* code = nullptr;
  uint64_t ended = 0;
  int offset = 0;  // of the instruction, in bytes
  uint32_t site = 0;
};
thread_local std::array<CodeSlot, kSlots> codes;
thread_local std::array<SiteSlot, kSlots> sites;
std::atomic<uint64_t> codes_ended{0};
// Code objects that are looked at, by the weak references that tell of their ends, and these.
// Guarded by the GIL.
std::unordered_map<PyObject*, PyCodeObject*> watches;
std::unordered_set<PyCodeObject*> watched;

PyObject* code_ended(PyObject*, PyObject* watch) {
  auto found = watches.find(watch);
  codes_ended.fetch_add(1, std::memory_order_release);
  if (found != watches.end()) {
    watched.erase(found->second);
    watches.erase(found);
    Py_DECREF(watch);
  }
  Py_RETURN_NONE;
}

// False: its end would not be told.
bool watch(PyCodeObject* code) {
  static PyMethodDef method{"code_ended", code_ended, METH_O, nullptr};
  static PyObject* callback = PyCFunction_New(&method, nullptr);
  if (watched.count(code)) return true;
  if (!callback || watched.size() >= kMaxWatched) return false;
  PyObject* reference = PyWeakref_NewRef(reinterpret_cast<PyObject*>(code), callback);
  if (!reference) return PyErr_Clear(), false;
  watches.emplace(reference, code);
  return watched.insert(code).second;
}

uint64_t ended_now() { return codes_ended.load(std::memory_order_acquire); }

size_t slot_of(const void* pointer) { return (reinterpret_cast<uintptr_t>(pointer) >> 4) % kSlots; }

std::string file_of(PyCodeObject* code) {
  const char* text = PyUnicode_AsUTF8(code->co_filename);
  if (!text) PyErr_Clear();
  return text ? text : "?";
}

// Frames of PyTorch and of this package are not the user's.
bool is_library(PyCodeObject* code) {
  CodeSlot& slot = codes[slot_of(code)];
  if (slot.code == code && slot.ended == ended_now()) return slot.library;
  pybind11::gil_scoped_acquire gil;
  std::string file = file_of(code);
  bool library = file.find("/site-packages/torch/") != std::string::npos ||
                 file.find("/torch_tpu/") != std::string::npos || file.rfind('<', 0) == 0;
  if (watch(code)) slot = {code, ended_now(), library};
  return library;
}

// Only of a code object that is watched may an instruction's address be remembered.
bool is_watched(PyCodeObject* code) {
  const CodeSlot& slot = codes[slot_of(code)];
  return slot.code == code && slot.ended == ended_now();
}

uint32_t add_site(PyCodeObject* code, int offset) {
  pybind11::gil_scoped_acquire gil;
  int line = PyCode_Addr2Line(code, offset);
  const char* function = PyUnicode_AsUTF8(code->co_name);
  if (!function) PyErr_Clear();
  return tt_site_add(file_of(code).c_str(), line, function ? function : "?");
}

uint32_t site_of(PyCodeObject* code, int offset) {
  SiteSlot& slot = sites[(slot_of(code) + static_cast<size_t>(offset)) % kSlots];
  if (slot.code == code && slot.offset == offset && slot.ended == ended_now()) return slot.site;
  uint32_t site = add_site(code, offset);
  if (is_watched(code)) slot = {code, ended_now(), offset, site};
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
