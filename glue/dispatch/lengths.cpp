#include "dispatch/lengths.h"

#include <algorithm>

namespace tt {

using c10::IValue;

namespace {

// Positions of a text's words, say, are part of a table, and as many as the words; what is not
// written yet may become as long.
void recall(Walk& walk) {
  tt_growing* growing = growing_sizes();
  for (size_t i = 0; i < walk.tensors.size() && tt_growing_any(growing); i++) {
    if (walk.storages[i]->bounded) continue;
    tt_view view = view_of(*walk.tensors[i]);
    if (!walk.storages[i]->value)
      for (int64_t size : walk.tensors[i]->sizes())
        tt_lengths_recall_size(&walk.lengths, growing, size);
    tt_lengths_recall(&walk.lengths, growing, &view, walk.storages[i]->type);
  }
}

// All but the last words of a text, say.
void recall_parts(Walk& walk) {
  tt_growing* growing = growing_sizes();
  for (size_t i = 0; i < walk.tensors.size(); i++) {
    const tt_storage* storage = walk.storages[i];
    if (!storage->bounded || walk.tensors[i]->numel() >= tt_type_numel(storage->type)) continue;
    tt_view view = view_of(*walk.tensors[i]);
    tt_lengths_recall_part(&walk.lengths, growing, &view, storage->bounded, &storage->reach);
  }
}

bool repeats(const at::Tensor& tensor) {
  auto sizes = tensor.sizes(), strides = tensor.strides();
  for (size_t i = 0; i < sizes.size(); i++)
    if (strides[i] == 0 && sizes[i] > 1) return true;
  return false;
}

bool has_length(const Walk& walk, const at::Tensor& tensor) {
  for (int64_t size : tensor.sizes())
    if (tt_lengths_find(&walk.lengths, size) >= 0) return true;
  return false;
}

// What bounded operands tell of the others: a number may be repeated for each word of each text, or
// batches are as many as words.
void recall_operands(Walk& walk) {
  bool merged = false, guide = false;
  for (size_t i = 0; i < walk.tensors.size(); i++) {
    if (walk.storages[i]->bounded) continue;
    merged |= repeats(*walk.tensors[i]);
    guide |= walk.plan.broadcasts && has_length(walk, *walk.tensors[i]);
  }
  for (size_t i = 0; i < walk.tensors.size() && (merged || guide); i++) {
    const tt_storage* storage = walk.storages[i];
    tt_view view = view_of(*walk.tensors[i]);
    tt_operand seen;
    if (!storage->bounded || !tt_operand_of(&walk.lengths, storage->type, storage->bounded,
                                            &storage->reach, TT_USE_READ, &view, &seen))
      continue;
    if (merged) tt_lengths_add_merged(&walk.lengths, &seen);
    if (guide) tt_lengths_guide(&walk.lengths, &seen);
  }
}

// A number is the size of the only dim that varies.
c10::ArrayRef<IValue> listed_sizes(const Walk& walk) {
  const IValue& all = walk.args[static_cast<size_t>(walk.plan.sizes)];
  return all.isInt() ? c10::ArrayRef<IValue>(all) : all.toListRef();
}

// Along which dim a part is put back; may be out of range.
int dim_put_back(const Walk& walk) {
  auto dim = walk.args[static_cast<size_t>(walk.plan.sizes) + 1].toInt();
  return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(listed_sizes(walk).size()) : dim);
}

// Whether the part has as many elements as the arguments behind the sizes say; a row's is one.
bool fits(const Walk& walk, int dim) {
  auto at = static_cast<size_t>(walk.plan.sizes);
  const at::Tensor& part = walk.args[0].toTensor();
  auto all = listed_sizes(walk);
  if (walk.args.size() <= at + 4 || part.dim() != static_cast<int64_t>(all.size())) return true;
  auto size = all[static_cast<size_t>(dim)].toInt();
  auto inside = [&](size_t arg) {
    auto place = walk.args[arg].toInt();
    return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
  };
  auto span = inside(at + 3) - inside(at + 2), step = walk.args[at + 4].toInt();
  return step > 0 && part.size(dim) == (std::max<int64_t>(span, 0) + step - 1) / step;
}

// The part is on the device, and the dim is one.
bool knows_where(const Walk& walk) {
  int dim = dim_put_back(walk);
  return !walk.operands.empty() && dim >= 0 && dim < static_cast<int>(listed_sizes(walk).size()) &&
         fits(walk, dim);
}

// The size that is listed for `dim`, as a mark of the result; its scalar is -1 if it is no length.
tt_mark mark_of_size(const Walk& walk, int64_t size, int dim) {
  if (!walk.plan.puts_back || dim == dim_put_back(walk))
    return {dim, tt_lengths_find(&walk.lengths, size), 1, 1};
  const tt_operand& part = walk.operands[0];
  bool lacks = part.view.rank < static_cast<int>(listed_sizes(walk).size());
  int at = lacks && dim > dim_put_back(walk) ? dim - 1 : dim;
  const tt_mark* found = tt_mark_of(&part.marks, at);
  tt_mark mark = found ? *found : tt_mark{dim, -1, 1, 1};
  mark.dim = dim;
  return mark;
}

// Arguments behind the sizes say where the part is: from the front, and to where it ends by itself,
// which no key needs to say.
void place_part(Walk& walk) {
  auto at = static_cast<size_t>(walk.plan.sizes);
  int dim = dim_put_back(walk);
  auto all = listed_sizes(walk);
  auto start = walk.args[at + 2].toInt();
  if (start < 0) walk.widened[at + 2] = start + all[static_cast<size_t>(dim)].toInt();
  const tt_operand& part = walk.operands[0];
  bool whole = part.view.rank == static_cast<int>(all.size()), has_end = walk.args.size() > at + 3;
  if (whole && has_end && tt_mark_of(&part.marks, dim)) walk.widened[at + 3] = TT_AS_MANY;
}

// Sizes that are listed may be lengths of live values, or nearly as long as what is put back.
void recall_sizes(Walk& walk) {
  tt_growing* growing = growing_sizes();
  auto all = listed_sizes(walk);
  if (!walk.plan.puts_back) {
    for (const IValue& one : all) tt_lengths_recall_size(&walk.lengths, growing, one.toInt());
    return;
  }
  const at::Tensor& part = walk.args[0].toTensor();
  int dim = dim_put_back(walk), rank = static_cast<int>(all.size());
  if (dim < 0 || dim >= rank) return;
  auto size = all[static_cast<size_t>(dim)].toInt();
  bool varies = part.dim() == rank && tt_lengths_find(&walk.lengths, part.size(dim)) >= 0;
  if (varies && size - part.size(dim) < TT_FEW_LEFT_OUT) tt_lengths_add_size(&walk.lengths, size);
  else tt_lengths_recall_size(&walk.lengths, growing, size);
}

// Which lengths there are, along which dims.
uint64_t word_of(const tt_marks& marks) {
  uint64_t word = 0;
  for (int k = 0; k < marks.count; k++)
    word = word << 12 | static_cast<uint64_t>(marks.of[k].dim << 4 | marks.of[k].scalar);
  return word << 2 | static_cast<uint64_t>(marks.count);
}

uint64_t word_of(const tt_operand& one) {
  uint64_t word = word_of(one.marks);
  for (int k = 0; k < tt_along_count(tt_type_along(one.type)); k++)
    word = word << 4 | static_cast<uint64_t>(one.lengths[k] + 1);
  return word;
}

}  // namespace

int joined_dim(const Walk& walk) {
  if (walk.plan.pads && !walk.tensors.empty()) {
    auto pad = walk.args[1].toIntVector();
    return tt_padded_dim(pad.data(), pad.size(), static_cast<int>(walk.tensors[0]->dim()));
  }
  if (!walk.plan.joins || walk.tensors.empty()) return -1;
  int64_t rank = walk.tensors[0]->dim(), dim = walk.args[1].toInt();
  for (const at::Tensor* one : walk.tensors)
    if (one->dim() != rank || rank == 0) return -1;
  if (dim < 0) dim += rank;
  return dim < rank ? static_cast<int>(dim) : -1;  // tensors of nothing may be joined along any
}

int64_t joined_size(const Walk& walk) {
  int64_t total = 0;
  int dim = joined_dim(walk);
  for (const at::Tensor* one : walk.tensors) total += one->size(dim);
  if (!walk.plan.pads) return total;
  auto pad = walk.args[1].toIntVector();
  auto at = 2 * static_cast<size_t>(walk.tensors[0]->dim() - 1 - dim);
  return total + pad[at] + pad[at + 1];
}

bool find_lengths(Walk& walk) {
  for (const tt_storage* one : walk.storages)
    if (one->bounded && !tt_lengths_add(&walk.lengths, one->bounded, &one->reach)) return false;
  bool any = walk.plan.spreads && walk.lengths.count;
  if (any) recall_parts(walk);
  if (walk.plan.spreads) recall(walk);
  if (any) recall_operands(walk);
  if (walk.plan.sizes >= 0) recall_sizes(walk);
  return true;
}

bool widen_sizes(Walk& walk) {
  if (walk.plan.sizes < 0 || (walk.plan.puts_back && !knows_where(walk))) return false;
  c10::List<int64_t> sizes;
  for (const IValue& one : listed_sizes(walk)) {
    auto size = one.toInt();
    tt_mark mark = mark_of_size(walk, size, static_cast<int>(sizes.size()));
    bool is = mark.scalar >= 0 && walk.sized.count < TT_MOST_ALONG;
    if (is) {
      walk.sized.of[walk.sized.count++] = mark;
      size = mark.outer * walk.lengths.of[mark.scalar].bound * mark.inner;
    }
    sizes.push_back(size);
  }
  bool any = walk.sized.count || (walk.plan.puts_back && walk.operands[0].marks.count);
  if (!any) return false;
  walk.widened.assign(walk.args.begin(), walk.args.end());
  if (walk.plan.puts_back) place_part(walk);
  IValue& listed = walk.widened[static_cast<size_t>(walk.plan.sizes)];
  if (listed.isInt()) listed = sizes.get(0);
  else listed = std::move(sizes);
  walk.args = walk.widened;
  return true;
}

bool add_lengths(Walk& walk) {
  bool any = walk.sized.count;
  for (const tt_operand& one : walk.operands) {
    any |= tt_type_is_bounded(one.type) || one.marks.count;
    tt_key_tag(&walk.key, TT_TAG_INT, TT_I64);
    tt_key_u64(&walk.key, word_of(one));
    tt_key_tag(&walk.key, TT_TAG_INT, TT_I64);
    tt_key_u64(&walk.key, static_cast<uint64_t>(one.more));
    for (int k = 0; k < tt_marks_count(&one.marks) && !tt_type_is_bounded(one.type); k++) {
      tt_key_tag(&walk.key, TT_TAG_INT, TT_I64);
      tt_key_u64(&walk.key, static_cast<uint64_t>(one.marks.of[k].outer));
      tt_key_tag(&walk.key, TT_TAG_INT, TT_I64);
      tt_key_u64(&walk.key, static_cast<uint64_t>(one.marks.of[k].inner));
    }
  }
  tt_key_tag(&walk.key, TT_TAG_INT, TT_I64);
  tt_key_u64(&walk.key, word_of(walk.sized) << 8 | static_cast<uint64_t>(walk.lengths.count));
  for (int i = 0; i < walk.lengths.count; i++)
    walk.numbers.push_back({TT_I64, static_cast<uint64_t>(walk.lengths.of[i].length)});
  return any;
}

void add_bound(Walk& walk) {
  auto dim = joined_dim(walk);
  bool along = walk.see == See::Growing;
  for (const tt_operand& one : walk.operands) along |= tt_mark_of(&one.marks, dim) != nullptr;
  if (dim < 0 || !along) return;
  int64_t total = joined_size(walk);
  walk.bound = tt_bound_of(total);
  tt_key_tag(&walk.key, TT_TAG_INT, TT_I64);
  tt_key_u64(&walk.key, static_cast<uint64_t>(walk.bound));
  walk.numbers.push_back({TT_I64, static_cast<uint64_t>(total)});
}

}  // namespace tt
