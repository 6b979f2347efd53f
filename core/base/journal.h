/* The journal: the last sentences about what was specialised and compiled, and why.
 * TORCH_TPU_LOG=compile prints them as they come. Thread-safe. */
#ifndef TT_JOURNAL_H
#define TT_JOURNAL_H

#include "base/mem.h"

enum { TT_JOURNAL_KEPT = 1024 };

/* Keeps a sentence, prefixed by what was done; deinits the text. */
void tt_journal_keep(const char *done, tt_text *text);
/* Sentences ever kept, and a copy of number i (from 0), which the caller frees with tt_free; NULL
 * if it is no longer, or not yet, kept. */
int64_t tt_journal_count(void);
char *tt_journal_get(int64_t i);

#endif
