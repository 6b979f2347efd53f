/* Builds a small program, runs it on the CPU plugin, and compares with expected values.
 *
 * Values travel as doubles: `program_in` is a double parameter converted to the dtype, and
 * `program_expect` converts the result back. Programs run only where TT_CPU_PLUGIN names a plugin;
 * elsewhere they are still built and verified. */
#ifndef TT_HLO_RUN_H
#define TT_HLO_RUN_H

#include "hlo/hlo.h"

#define PROGRAM_MAX_INPUTS 16
#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define INTS(...) ((int[]){__VA_ARGS__})
#define VALS(...) ((double[]){__VA_ARGS__})

typedef struct program {
  tt_hlo *h;
  int count;
  tt_type types[PROGRAM_MAX_INPUTS];
  const double *values[PROGRAM_MAX_INPUTS];
} program;

program program_start(void);
/* `values` is borrowed until the program has run. */
tt_node *program_in(program *p, tt_dtype dtype, int rank, const int64_t *dims,
                    const double *values);
/* Runs, compares every element (relative and absolute tolerance 2e-5; NaN equals NaN), and destroys
 * the program. */
void program_expect(program *p, tt_node *result, const double *expected);
/* Finishes and compiles; the results' values do not matter. Destroys the program. */
void program_accept(program *p, tt_node *const *results, int count);
/* The program fails to build with this message (a part of it). Destroys the program. */
void program_refuse(program *p, tt_node *result, const char *part);
/* Whether TT_CPU_PLUGIN is set. */
bool program_can_run(void);

#endif
