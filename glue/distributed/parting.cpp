#include "distributed/parting.h"

#include "device/policy.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <sstream>
#include <thread>

namespace tt {
namespace {

constexpr int64_t kTold = 256;  // of the flight record: the store is not made for more
constexpr char kField = '\x1f', kIssue = '\n';

std::string listed(const std::vector<int64_t>& numbers) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), kShown); i++)
    text += (i ? ", " : "") + std::to_string(numbers[i]);
  if (numbers.size() > kShown) text += " and " + std::to_string(numbers.size() - kShown) + " more";
  return text;
}

const Issue* find(const std::vector<Issue>& all, int64_t sequence) {
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const Issue& one) { return one.sequence == sequence; });
  return found == all.end() ? nullptr : &*found;
}

// Ranks that say the same are told of together, with the line of the first of them.
std::string told(const std::vector<int64_t>& ranks, const std::vector<const Issue*>& issues) {
  std::vector<std::pair<const Issue*, std::vector<int64_t>>> kinds;
  for (size_t i = 0; i < ranks.size(); i++) {
    auto same = [&](auto& one) { return one.first->what == issues[i]->what; };
    auto found = std::find_if(kinds.begin(), kinds.end(), same);
    if (found == kinds.end()) kinds.push_back({issues[i], {ranks[i]}});
    else found->second.push_back(ranks[i]);
  }
  if (kinds.size() < 2) return "";
  std::string text = "collective " + std::to_string(issues[0]->sequence) + ":";
  for (size_t i = 0; i < kinds.size(); i++) {
    auto& [issue, who] = kinds[i];
    text += (i ? "; rank" : " rank") + std::string(who.size() > 1 ? "s " : " ") + listed(who) +
            ": " + issue->what + (issue->line.empty() ? "" : " at " + issue->line);
  }
  return text;
}

// What one rank sends is what the other one takes.
std::string splits_differ(const std::vector<int64_t>& ranks,
                          const std::vector<const Issue*>& issues) {
  size_t size = ranks.size();
  auto part = [&](size_t of, size_t at) {
    auto& splits = issues[of]->splits;
    return splits.size() == 2 * size ? splits[at] : -1;
  };
  for (size_t from = 0; from < size; from++) {
    for (size_t to = 0; to < size; to++) {
      int64_t sent = part(from, to), taken = part(to, size + from);
      if (sent == taken || sent < 0 || taken < 0) continue;
      return "collective " + std::to_string(issues[0]->sequence) + ": rank " +
             std::to_string(ranks[from]) + ": " + issues[from]->what + " sends " +
             std::to_string(sent) + " elements to rank " + std::to_string(ranks[to]) + " at " +
             issues[from]->line + "; rank " + std::to_string(ranks[to]) + " takes " +
             std::to_string(taken) + " from it at " + issues[to]->line;
    }
  }
  return "";
}

}  // namespace

std::string parting(const std::vector<Told>& ranks) {
  if (ranks.empty()) return "";
  for (const Issue& first : ranks[0].all) {
    std::vector<int64_t> who;
    std::vector<const Issue*> issues;
    for (const Told& one : ranks) {
      const Issue* found = find(one.all, first.sequence);
      if (!found) break;
      who.push_back(one.rank);
      issues.push_back(found);
    }
    if (who.size() < ranks.size()) continue;
    std::string text = told(who, issues);
    if (text.empty()) text = splits_differ(who, issues);
    if (!text.empty()) return text;
  }
  return "";
}

std::string packed(const std::vector<Issue>& issues) {
  std::ostringstream text;
  for (const Issue& one : issues) {
    text << one.sequence << kField << one.what << kField << one.line << kField;
    for (int64_t part : one.splits) text << part << ' ';
    text << kIssue;
  }
  return text.str();
}

std::vector<Issue> unpacked(const std::string& text) {
  std::vector<Issue> issues;
  std::istringstream lines(text);
  for (std::string line, sequence, splits; std::getline(lines, line, kIssue);) {
    std::istringstream fields(line);
    Issue one;
    std::getline(fields, sequence, kField);
    std::getline(fields, one.what, kField);
    std::getline(fields, one.line, kField);
    one.sequence = std::atoll(sequence.c_str());
    for (int64_t part = 0; fields >> part;) one.splits.push_back(part);
    issues.push_back(std::move(one));
  }
  return issues;
}

std::string words_of(const Carrier& carrier, tt_collective_kind kind, int op, int64_t count,
                     const char* unit, int64_t root) {
  static constexpr const char* kOps[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                         "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  std::string text = tt_collective_name(kind);
  if (kind == TT_COLLECTIVE_BARRIER) return text;
  if (tt_collective_reduces(kind) && op >= 0 && op < static_cast<int>(std::size(kOps)))
    text += std::string(" (") + kOps[op] + ")";
  text += " of ";
  if (kind != TT_COLLECTIVE_ALL_TO_ALL) text += std::to_string(count) + " ";
  text += unit;
  bool from = kind == TT_COLLECTIVE_BROADCAST || kind == TT_COLLECTIVE_SCATTER;
  bool to = kind == TT_COLLECTIVE_REDUCE || kind == TT_COLLECTIVE_GATHER;
  if (!from && !to) return text;
  auto whole = root >= 0 && root < static_cast<int64_t>(carrier.global_ranks.size())
                   ? carrier.global_ranks[static_cast<size_t>(root)]
                   : root;
  return text + (from ? " from rank " : " to rank ") + std::to_string(whole);
}

bool told_by_inputs(tt_collective_kind kind) {
  return kind == TT_COLLECTIVE_ALL_GATHER || kind == TT_COLLECTIVE_GATHER;
}

std::vector<Issue> recorded(const Carrier& carrier) {
  std::vector<Issue> issues;
  int64_t count = tt_flight_count();
  std::string name = carrier.name.substr(0, sizeof(tt_flight::group) - 1);
  for (int64_t i = count - 1; i >= 0 && static_cast<int64_t>(issues.size()) < kTold; i--) {
    tt_flight one;
    if (!tt_flight_get(i, &one)) break;
    if (tt_collective_is_message(one.kind) || name != one.group) continue;
    if (!issues.empty() && one.sequence >= issues.back().sequence) break;  // an earlier group's
    const char* unit = tt_collective_reduces(one.kind) ? tt_dtype_name(one.dtype) : "bytes";
    int64_t part = told_by_inputs(one.kind) ? one.x_count : one.y_count;
    auto words = words_of(carrier, one.kind, one.op, part, unit, one.root);
    issues.push_back({one.sequence, words, line_of(one), {}});
  }
  std::reverse(issues.begin(), issues.end());
  return issues;
}

void compare_ranks(const Carrier& carrier, int rank, int size, const Issue& issue) {
  constexpr Milliseconds kShort(1), kLong(20);
  auto begun = std::chrono::steady_clock::now();
  Milliseconds timeout(carrier.timeout_ms.load());
  auto key = [&](int64_t sequence, int of) {
    return "debug/" + std::to_string(sequence) + "/" + std::to_string(of);
  };
  carrier.store->set(key(issue.sequence, rank), packed({issue}));
  std::vector<Told> ranks;
  for (int one = 0; one < size; one++) {
    auto global = carrier.global_ranks[static_cast<size_t>(one)];
    for (auto pause = kShort; !carrier.store->check({key(issue.sequence, one)});) {
      auto waited = std::chrono::steady_clock::now() - begun;
      TORCH_CHECK_WITH(
          DistBackendError, waited < timeout, "process group ", carrier.name,
          ": Debug compares what the ranks issue, and rank ", global,
          " has not said what its collective ", issue.sequence, " is, while this one's is ",
          issue.what, issue.line.empty() ? "" : " at ", issue.line, " (the time-out is ",
          static_cast<double>(timeout.count()) / 1000, " s; all ranks have to be in Debug mode)");
      check(tt_interrupted());
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLong);
    }
    ranks.push_back({global, unpacked(carrier.store->get_to_str(key(issue.sequence, one)))});
  }
  // Who is here has read what was told before.
  if (issue.sequence) carrier.store->deleteKey(key(issue.sequence - 1, rank));
  std::string where = parting(ranks);
  TORCH_CHECK_WITH(DistBackendError, where.empty(), "process group ", carrier.name,
                   ": the ranks part at ", where);
}

}  // namespace tt
