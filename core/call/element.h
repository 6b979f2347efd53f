/* Calls on lists, taken apart: element k of one is a call of its own, on lists of one. Elements
 * that are alike are one call, whatever list they stand in, so what is compiled for one parameter
 * of an optimizer serves all that have its type. */
#ifndef TT_CALL_ELEMENT_H
#define TT_CALL_ELEMENT_H

#include "call/table.h"

typedef struct tt_element {
  tt_call *call;     /* its one output is the list's output of the same number as the element */
  const int *inputs; /* [call->input_count] which of the list's inputs each is */
  const int *words;  /* [call->word_count] which of the list's words each is */
} tt_element;

/* The elements of a call of the table: *out, [call->output_count], lives as long as the call. NULL:
 * it is no call on lists, or its elements share something. Thread-safe. */
tt_status tt_call_elements(tt_call *call, const tt_element **out);

#endif
