/* Trying compile options out, before anything that matters is compiled with them. */
#ifndef TT_TRIAL_H
#define TT_TRIAL_H

#include "program/program.h"

/* Compiles the smallest program with these options, a text's first lines (pjrt/pjrt.h), and waits
 * for it: what the plugin has against them. Thread-safe. */
tt_status tt_options_try(tt_program_table *table, const char *options);

#endif
