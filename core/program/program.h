/* A program: a module compiled for a target. Equal texts for one target share one program. */
#ifndef TT_PROGRAM_H
#define TT_PROGRAM_H

#include "base/atomic.h"
#include "graph/build.h"
#include "program/compile.h"

typedef struct tt_program_table tt_program_table;

/* Unloaded: the executable made way for others, and is loaded or compiled again when needed. */
typedef enum tt_program_state {
  TT_PROGRAM_COMPILING,
  TT_PROGRAM_READY,
  TT_PROGRAM_FAILED,
  TT_PROGRAM_UNLOADED
} tt_program_state;

typedef struct tt_program {
  tt_program_table *table;
  tt_module module;
  TT_ATOMIC(int) state;     /* tt_program_state */
  bool background;          /* it is compiled when the compilers have nothing else to do */
  TT_ATOMIC(int) users;     /* launches under way, and pins: it stays loaded */
  TT_ATOMIC(int) pins;      /* of captures and of their launches */
  TT_ATOMIC(bool) lasting;  /* calls or chunks have it, too: it stays when nobody pins it */
  TT_ATOMIC(bool) launched; /* at least once */
  TT_ATOMIC(int64_t) used;  /* when it was last launched, on a clock of launches */
  tt_executable *executable;
  TT_ATOMIC(int64_t) compile_ns; /* what it took; 0 until it is ready */
  TT_ATOMIC(int) source;         /* tt_disk_source: where it was found the last time */
  tt_status error;
} tt_program;

/* How much a program is wanted. */
typedef enum tt_want {
  TT_WANT_NOW,        /* it is compiled at once */
  TT_WANT_BACKGROUND, /* it may never be needed: it is compiled once tt_program_poll asks for it,
                         and then delays no other; or at once, when somebody wants it now */
  TT_WANT_FOUND,      /* the same, but there is none, NULL, unless it is in memory already or in a
                         cache folder, and then without being asked for */
  TT_WANT_KNOWN, /* nothing new may be compiled: FAILED_PRECONDITION unless it is in memory or in
                    a cache folder */
  TT_WANT_TEXT   /* as BACKGROUND; others will run it, so its text calls no functions of ours */
} tt_want;

/* -- The programs of one target; thread-safe -- */
/* The target is borrowed. */
tt_status tt_program_table_create(const tt_target *target, tt_program_table **out);
/* Ends the compilers and frees all programs; nobody may use them any more. NULL is allowed. */
void tt_program_table_destroy(tt_program_table *table);
const tt_target *tt_program_table_target(const tt_program_table *table);
tt_compiler *tt_program_table_compiler(tt_program_table *table);
int64_t tt_program_table_size(tt_program_table *table);
/* Before the process exits: what waits for a compiler is cancelled, what is being compiled and
 * somebody waits for is waited for, and from then on nothing is compiled or launched. False: a
 * compiler still runs in the background. */
bool tt_program_table_end(tt_program_table *table);
/* Forgets programs that are neither loaded nor on their way. */
void tt_program_table_reclaim(tt_program_table *table);

/* Takes the module's fields; *out is an equal program that exists already, or a new one. */
tt_status tt_program_intern(tt_program_table *table, tt_module *module, tt_want want,
                            tt_program **out);
/* The same, of a program whose executable, which it takes, is at hand. */
tt_status tt_program_adopt(tt_program_table *table, tt_module *module, tt_executable *executable,
                           tt_program **out);
/* The program of a graph; *fresh: its text was new to the process. */
tt_status tt_program_of_graph(tt_program_table *table, const tt_graph *graph, tt_want want,
                              tt_program **out, bool *fresh);
/* The same, pinned, for who will let go of it. */
tt_status tt_program_pin_graph(tt_program_table *table, const tt_graph *graph, tt_want want,
                               tt_program **out, bool *fresh);
/* Has the call its own program, or would it not keep one? */
bool tt_program_is_known(const tt_program_table *table, const tt_call *call);
/* The program of a call alone, which the call keeps if it was specialised for this target. */
tt_status tt_program_of_call(tt_program_table *table, tt_call *call, tt_want want,
                             tt_program **out);

/* Waits for the compiler; what failed for want of memory or of a device is tried once more. After
 * success the executable stays until tt_program_release. The error is a clone. Thread-safe. */
tt_status tt_program_await(tt_program *program);
void tt_program_release(tt_program *program);
/* Keeps it in the table until tt_program_unpin, loaded or not yet. Thread-safe. */
void tt_program_pin(tt_program *program);
/* What nobody pins any more is unloaded as soon as nobody uses it, unless it lasts. Thread-safe. */
void tt_program_unpin(tt_program *program);
/* Is it ready? One that is not loaded is loaded or compiled meanwhile, if `want` allows that. NULL,
 * here and below, is none that could be. Thread-safe. */
bool tt_program_poll(tt_program *program, tt_want want);
bool tt_program_is_ready(const tt_program *program);
/* Is it ready, or on its way for somebody who waits for it? Thread-safe. */
bool tt_program_is_coming(tt_program *program);
/* What the plugin knows of its needs; false where it says nothing, or the program is not loaded.
 * Thread-safe. */
bool tt_program_needs(tt_program *program, tt_program_memory *out);

/* All that is known of a program, for people. */
typedef struct tt_program_facts {
  tt_disk_source source;
  int64_t compile_ns; /* to compile it, or to load it */
  tt_program_memory memory;
  bool memory_known;
  double bytes;      /* that a run moves; -1: the plugin does not tell */
  tt_text optimized; /* as of tt_executable_optimized; of size 0 where the plugin does not tell */
} tt_program_facts;
/* Waits for the compiler; its error, or the lack of memory. The caller frees out->optimized, also
 * on failure. Thread-safe. */
tt_status tt_program_tell(tt_program *program, tt_program_facts *out);

#endif
