/* A program: one compiled executable, shared by all calls that lower to the same text. */
#ifndef TT_PROGRAM_H
#define TT_PROGRAM_H

#include "pjrt/pjrt.h"

#include <stdatomic.h>

#include "ops/ops.h"

/* Unloaded: the executable made way for others, and is loaded or compiled again when needed. */
typedef enum tt_program_state {
  TT_PROGRAM_COMPILING,
  TT_PROGRAM_READY,
  TT_PROGRAM_FAILED,
  TT_PROGRAM_UNLOADED
} tt_program_state;

typedef struct tt_program {
  atomic_int state;     /* tt_program_state */
  bool later;           /* it is compiled when the compilers have nothing else to do */
  atomic_int users;     /* launches under way: it stays loaded */
  atomic_bool launched; /* at least once */
  _Atomic int64_t used; /* when it was last launched, on a clock of launches */
  tt_text text;         /* StableHLO */
  tt_executable *executable;
  _Atomic int64_t compile_ns; /* what it took; 0 until it is ready */
  tt_status error;
  char *name;       /* of the first call that asked for it */
  int result_count; /* without check flags */
  int donor_count;  /* parameters that may be donated, ascending */
  int64_t *donors;
  int check_count; /* rank-0 bool results after the others; true means violated */
  char **check_texts;
  tt_code *check_codes;
} tt_program;

/* Takes the fields of `program` (text, name, donors, checks); *out is an equal program that exists
 * already, or a new one whose compilation has been started. Thread-safe. */
tt_status tt_program_intern(tt_program *program, tt_program **out);
/* The same for one that may never be needed: it is compiled once tt_program_poll asks for it, and
 * then delays no other; or at once by tt_program_intern or tt_program_await. */
tt_status tt_program_intern_later(tt_program *program, tt_program **out);
void tt_program_deinit(tt_program *program);
/* Waits for the compiler; what failed for want of memory or of a device is tried once more. After
 * success the executable stays until tt_program_release. The error is a clone. Thread-safe. */
tt_status tt_program_await(tt_program *program);
void tt_program_release(tt_program *program);
/* Is it ready? One that is not loaded is loaded or compiled meanwhile, unless new programs are
 * forbidden. Thread-safe. */
bool tt_program_poll(tt_program *program);
static inline bool tt_program_is_ready(const tt_program *program) {
  return atomic_load(&program->state) == TT_PROGRAM_READY;
}
/* What the plugin knows of its needs; false where it says nothing, or the program is not loaded.
 * Thread-safe. */
bool tt_program_needs(tt_program *program, tt_program_memory *out);
int64_t tt_program_table_size(void);
/* Before the process exits: what waits for a compiler is cancelled, what is being compiled is
 * waited for, and from then on nothing is compiled or launched. Thread-safe. */
void tt_program_end(void);
/* Ends the compilers and frees all programs; nobody may use them any more. */
void tt_program_shutdown(void);

#endif
