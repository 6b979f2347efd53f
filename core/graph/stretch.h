/* Stretches: a graph divided into graphs of consecutive steps, where equal ones follow one another.
 * Equal stretches have the same text, so that they are one program: the layers of a model are
 * compiled once, however many there are. */
#ifndef TT_STRETCH_H
#define TT_STRETCH_H

#include "graph/graph.h"
#include "graph/repeat.h"

enum { TT_MOST_STRETCHES = 512 };

typedef struct tt_stretch {
  const tt_graph *graph; /* over slots of its own; its results are what others need */
  const int *slots;      /* [graph->slot_count] which of the whole graph's slots each one is */
  const int *words;      /* [graph->word_count] likewise */
} tt_stretch;

/* The stretches, in order, in the arena; steps that no output needs are in none. *out has one, the
 * graph itself, where nothing repeats, or `limits` is NULL; else at most TT_MOST_STRETCHES. Weights
 * are bytes that the steps read and write. */
tt_status tt_graph_divide(tt_arena *arena, const tt_graph *graph, const tt_repeat_limits *limits,
                          tt_stretch **out, int *count);

#endif
