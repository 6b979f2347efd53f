#include "device/library.h"

#include <ATen/Context.h>
#include <c10/core/thread_pool.h>
#include <c10/util/Exception.h>

#include <cfenv>
#include <future>

namespace tt {
namespace {

// What a kernel has to say its Meta kernel has said, at the script's line.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// The floating-point environment that a thread had before, as queues' and XLA's do other work, too.
struct Restored {
  std::fenv_t environment{};
  Restored() { std::fegetenv(&environment); }
  ~Restored() { std::fesetenv(&environment); }
};

struct Plain {
  Restored restored;
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard warnings{&silent};
  c10::impl::ForceDispatchKeyGuard keys{c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
                                        c10::default_excluded_set |
                                            c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

tt_status run(const std::function<tt_status()>& act) {
  tt_status result = TT_SUCCESS;
  tt_status thrown = attempt(TT_INTERNAL, [&] {
    Plain plain;
    at::globalContext().setFlushDenormal(true);
    result = act();
  });
  return thrown ? thrown : result;
}

// OpenMP's and MKL's functions, as libtorch has them: they are about the thread that calls them.
template <class Function> Function* find(const char* name) {
  return reinterpret_cast<Function*>(find_in_torch(name));
}

// The thread computes alone.
class Alone {
 public:
  Alone() {
    if (omp_) omp_(1);
    if (mkl_) mkl_before_ = mkl_(1);
  }
  ~Alone() {
    if (omp_) omp_(omp_before_);
    if (mkl_) mkl_(mkl_before_);
  }

 private:
  static inline auto* const asked_ = find<int()>("omp_get_max_threads");
  static inline auto* const omp_ = asked_ ? find<void(int)>("omp_set_num_threads") : nullptr;
  static inline auto* const mkl_ = find<int(int)>("MKL_Set_Num_Threads_Local");
  int omp_before_ = omp_ ? asked_() : 0, mkl_before_ = 0;
};

// Each thread that asks OpenMP for others gets its own, and to wake them takes longer than a small
// convolution: that one is computed by the calling thread alone, others by the threads of one.
constexpr double kLarge = 1 << 24;  // products: 0.3 ms of a thread, forward

// Lives as long as the process, in which programs may run until it exits.
c10::ThreadPool& the_one() {
  static auto* one = new c10::ThreadPool(1);
  return *one;
}

}  // namespace

tt_status run_in_library(double products, const std::function<tt_status()>& act) {
  if (products < kLarge) {
    Alone alone;
    return run(act);
  }
  std::promise<tt_status> done;
  the_one().run([&] { done.set_value(run(act)); });
  return done.get_future().get();
}

void compute_in_library(double products, const std::function<void()>& act) {
  if (products >= kLarge) return act();
  Alone alone;
  act();
}

}  // namespace tt
