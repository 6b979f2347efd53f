#include "call/spreading.h"

#include <assert.h>
#include <string.h>

int tt_spread_find(const tt_spread *s, int code) {
  int i = 0;
  while (i < s->known_count && s->known[i].code != code) i++;
  return i;
}

bool tt_spread_same(const tt_mark *a, const tt_mark *b) {
  return a->scalar == b->scalar && a->outer == b->outer && a->inner == b->inner;
}

bool tt_spread_same_all(const tt_marks *a, const tt_marks *b) {
  bool same = a->count == b->count;
  for (int k = 0; k < tt_marks_count(a) && same; k++) {
    const tt_mark *other = tt_mark_of(b, a->of[k].dim);
    same = other && tt_spread_same(&a->of[k], other);
  }
  return same;
}

bool tt_spread_note(tt_spread *s, int code, const tt_call_tensor *tensor, const tt_mark *mark) {
  int64_t size = tensor->view.sizes[mark->dim];
  int i = tt_spread_find(s, code);
  assert(i >= 0 && s->known_count <= TT_MOST_SPREAD);
  if (i < s->known_count)
    return tt_spread_same(&s->known[i].mark, mark) && s->known[i].size == size;
  if (i == TT_MOST_SPREAD) return false;
  s->known[i].code = code;
  s->known[i].size = size;
  s->known[i].mark = *mark;
  s->known_count++;
  return true;
}

bool tt_spread_note_dims(tt_spread *s, const tt_call_tensor *tensor) {
  bool all = true;
  for (int k = 0; k < tt_marks_count(&tensor->marks) && all; k++)
    all = tt_spread_note(s, TT_CODE_DIM + tensor->marks.of[k].dim, tensor, &tensor->marks.of[k]);
  return all;
}

bool tt_spread_leave_out(tt_spread *s, int tensor, const tt_mark *mark) {
  if (s->length_count == TT_MOST_SPREAD) return false;
  s->lengths[s->length_count++] = (tt_call_length){.tensor = tensor,
                                                   .dim = mark->dim,
                                                   .scalar = mark->scalar,
                                                   .outer = mark->outer,
                                                   .inner = mark->inner,
                                                   .motion = TT_MOTION_NONE};
  return true;
}

bool tt_spread_codes(const char *pattern, int rank, int *codes) {
  int size = (int)strcspn(pattern, ",-"), at = 0;
  if (rank == 0) return true;
  const char *none = memchr(pattern, '!', (size_t)size);
  for (int i = 0; none && i < rank; i++)
    codes[i] = i < none - pattern ? (unsigned char)pattern[i] : 'A';
  if (none) return true;
  const char *dots = memchr(pattern, '.', (size_t)size);
  int rest = dots ? rank - (size - 3) : 0;
  if (rest < 0 || (!dots && size != rank)) return false;
  for (int i = 0; i < size && pattern[i]; i++) {
    if (pattern[i] != '.') {
      codes[at++] = (unsigned char)pattern[i];
      continue;
    }
    for (int k = rest - 1; k >= 0; k--) codes[at++] = TT_CODE_ELLIPSIS + k;
    i += 2;
  }
  return true;
}

/* Beside a marked dim others are marked alike, or have one element. */
bool tt_spread_agrees(const tt_spread *s, const tt_call_tensor *tensor, const int *codes) {
  for (int dim = 0; dim < tensor->view.rank; dim++) {
    if (!tt_mark_of(&tensor->marks, dim) && tensor->view.sizes[dim] != 1 &&
        tt_spread_find(s, codes[dim]) < s->known_count)
      return false;
  }
  return true;
}
