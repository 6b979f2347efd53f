// Where ranks part: what each rank of a group says of the collectives that it issues, and the first
// of them at which they differ.
#pragma once

#include "distributed/distributed.h"

namespace tt {

struct Issue {
  int64_t sequence = 0;         // in the group
  std::string what;             // equal on all ranks: "all_reduce (SUM) of 3 f32"
  std::string line;             // the Python line that asked for it, or ""
  std::vector<int64_t> splits;  // of all_to_all, if given: what is sent to each rank, and taken
};

// What one rank, by its number in the whole program, has issued; in the order of the group.
struct Told {
  int64_t rank = 0;
  std::vector<Issue> all;
};

// "collective 5: rank 0: all_reduce .. at train.py:12; rank 1: ..": the first one, of those that
// all of them tell of, that differs; "" if none does.
std::string parting(const std::vector<Told>& ranks);

// For the store.
std::string packed(const std::vector<Issue>& issues);
std::vector<Issue> unpacked(const std::string& text);

// `count` units ("f32", "bytes") are in each rank's part. op: c10d::ReduceOp's number.
std::string words_of(const Carrier& carrier, tt_collective_kind kind, int op, int64_t count,
                     const char* unit, int64_t root);

// Whether that part is what a rank gives, and not what it gets.
bool told_by_inputs(tt_collective_kind kind);

// The last collectives of this group in the process's flight record, without messages.
std::vector<Issue> recorded(const Carrier& carrier);

// Debug's handshake: tells the other ranks what this one is about to issue, and waits until they
// have told it. Throws DistBackendError where they part, or do not answer before the time-out.
void compare_ranks(const Carrier& carrier, int rank, int size, const Issue& issue);

}  // namespace tt
