// What is asked of a group, as the plugin's own collectives do it: on all devices alike.
#include "distributed/distributed.h"

#include <ATen/core/LegacyTypeDispatch.h>

namespace tt {
namespace {

using Tensors = std::vector<at::Tensor>;

int64_t device_of_rank(const Carrier& carrier, int64_t rank) {
  TORCH_CHECK(rank >= 0 && rank < carrier.members->size, "the group has no rank ", rank);
  return carrier.devices().at(static_cast<size_t>(carrier.members->ranks[rank]));
}

bool are_equal(const std::vector<int64_t>& parts) {
  return std::adjacent_find(parts.begin(), parts.end(), std::not_equal_to<>()) == parts.end();
}

// As that of the whole world, of which the group's ranks are along a dim of a mesh.
Asked among_all(const Carrier& carrier) {
  const tt_members& members = *carrier.members;
  const std::vector<int64_t>& all = carrier.devices();
  Asked asked = among(carrier);
  int64_t whole = carrier.world ? carrier.world->number : 0;
  asked.party = whole * TT_PARTY_KINDS + TT_PARTY_CAPTURED;
  std::vector<int64_t> ranks(all.size());
  TORCH_CHECK(
      tt_dist_partition(members.ranks, members.size, static_cast<int>(ranks.size()), ranks.data()),
      "process group ", members.name, ": its ranks are along no dim of a mesh of the ",
      ranks.size(), " ranks, so that no captured program of all of them can have it");
  asked.devices.clear();
  for (int64_t rank : ranks) asked.devices.push_back(all.at(static_cast<size_t>(rank)));
  return asked;
}

}  // namespace

Asked among(const Carrier& carrier) {
  Asked asked{};
  asked.ranks = carrier.members->size;
  asked.party = carrier.party(TT_PARTY_ALL);
  for (int64_t rank = 0; rank < asked.ranks; rank++)
    asked.devices.push_back(device_of_rank(carrier, rank));
  return asked;
}

// What the first of the two gives both.
Asked between(const Carrier& carrier, int64_t from, int64_t to) {
  Asked asked{TT_COLLECTIVE_BROADCAST};
  asked.devices = {device_of_rank(carrier, from), device_of_rank(carrier, to)};
  asked.ranks = 2;
  auto way = asked.devices[0] < asked.devices[1] ? TT_PARTY_UP : TT_PARTY_DOWN;
  asked.party = carrier.party(way);
  return asked;
}

at::Tensor flat(at::TensorList tensors) {
  Tensors parts;
  for (const at::Tensor& one : tensors) {
    TORCH_CHECK(one.scalar_type() == tensors[0].scalar_type(),
                "a collective takes tensors of one dtype, not ", tensors[0].scalar_type(), " and ",
                one.scalar_type());
    parts.push_back(one.reshape({-1}));
  }
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

void unflatten(const at::Tensor& all, at::TensorList tensors) {
  int64_t at = 0;
  for (const at::Tensor& one : tensors) {
    at::Tensor(one).copy_(all.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
}

int64_t numel_of(const Tensors& tensors) {
  int64_t total = 0;
  for (const at::Tensor& one : tensors) total += one.numel();
  return total;
}

Packed::Packed(Carrier& carrier, bool spans, Asked& asked, const Tensors& given, const Tensors& own)
    : own_(own) {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  int64_t rank = carrier.members->rank, size = carrier.members->size;
  bool is_root = asked.root == rank, in_place = tt_collective_in_place(asked.kind);
  if (!given.empty()) inputs = {flat(given)};
  if (!own.empty()) outputs = {in_place ? flat(own) : at::empty({numel_of(own)}, own[0].options())};
  switch (asked.kind) {
  case TT_COLLECTIVE_SEND:
    outputs.swap(inputs);
    asked = between(carrier, rank, asked.root);
    return;
  case TT_COLLECTIVE_RECV:
    outputs[0].zero_();  // what was never written is no operand of a program, but the sender's is
    asked = between(carrier, asked.root, rank);
    return;
  case TT_COLLECTIVE_GATHER:
    asked.kind = TT_COLLECTIVE_ALL_GATHER;
    if (!is_root) outputs = {at::empty({size * inputs.at(0).numel()}, inputs[0].options())};
    break;
  case TT_COLLECTIVE_SCATTER:
    if (!is_root) inputs = {at::zeros({size * outputs.at(0).numel()}, outputs[0].options())};
    break;
  default:
    break;
  }
  // Who captures may hold a lock that the others need to do so, too: Dynamo's, between threads.
  if (spans && are_equal(asked.splits)) asked.splits.clear();
  if (!asked.splits.empty()) pad(carrier, asked);
  Asked group = spans ? among_all(carrier) : among(carrier);
  asked.devices = std::move(group.devices);
  asked.ranks = group.ranks;
  asked.party = group.party;
}

// Parts of one size, of which the rest counts for nothing.
void Packed::pad(Carrier& carrier, Asked& asked) {
  int64_t ranks = carrier.members->size;
  int64_t most = *std::max_element(asked.splits.begin(), asked.splits.end());
  std::string what = "parts/" + std::to_string(carrier.unequal++);
  check(tt_members_most(carrier.members, what.c_str(), most, &most));
  at::Tensor x = inputs.at(0);
  inputs = {at::zeros({ranks * most}, x.options())};
  outputs = {at::empty({ranks * most}, x.options())};
  for (int64_t rank = 0, from = 0; rank < ranks; rank++) {
    int64_t count = asked.splits[static_cast<size_t>(rank)];
    inputs[0].narrow(0, rank * most, count).copy_(x.narrow(0, from, count));
    from += count;
  }
  parts_.assign(asked.splits.begin() + ranks, asked.splits.end());
  asked.splits.clear();
}

void Packed::unpack() const {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  if (own_.empty()) return;
  at::Tensor all = outputs.at(0);
  if (!parts_.empty()) {
    Tensors parts;
    auto most = all.numel() / static_cast<int64_t>(parts_.size());
    for (size_t i = 0; i < parts_.size(); i++)
      parts.push_back(all.narrow(0, static_cast<int64_t>(i) * most, parts_[i]));
    all = at::cat(parts);
  }
  unflatten(all, own_);
}

}  // namespace tt
