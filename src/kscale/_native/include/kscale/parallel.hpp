#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace kscale {

// Joins its threads on every way out. std::jthread would too, but it raises the
// wheel's glibc floor from 2.24 to 2.34.
class Threads {
 public:
  Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { join(); }
  void join() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  template <class F>
  void start(F&& work) {
    threads_.emplace_back(std::forward<F>(work));
  }

 private:
  std::vector<std::thread> threads_;
};

// Call work(begin, end) over [0, n), split into at most `n_threads` even parts; the calling
// thread takes the first. `work` must not throw: an exception that leaves a thread ends the process.
// A thread costs some 40 us to start and join: worth it from about 100 us of work.
template <class Work>
void parallel_for(std::ptrdiff_t n, std::ptrdiff_t n_threads, Work work) {
  const std::ptrdiff_t most = std::max<std::ptrdiff_t>(n, 1);
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(n_threads, 1, most);
  const std::ptrdiff_t step = (n + parts - 1) / parts;
  Threads threads;
  for (std::ptrdiff_t begin = step; begin < n; begin += step)
    threads.start([=] { work(begin, std::min(begin + step, n)); });
  work(std::ptrdiff_t{0}, std::min(step, n));
}

// Calls make() once in each of at most `n_threads` threads, and its result with 0, 1, ... n - 1, each once and in any
// thread. An exception is thrown again after all threads have ended.
template <class Make>
void parallel_each(std::ptrdiff_t n, std::ptrdiff_t n_threads, Make make) {
  std::atomic<std::ptrdiff_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  parallel_for(std::min(n, n_threads), n_threads, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    try {
      if (begin == end) return;
      auto work = make();
      for (std::ptrdiff_t i = next++; i < n; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
      next = n;
    }
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace kscale
