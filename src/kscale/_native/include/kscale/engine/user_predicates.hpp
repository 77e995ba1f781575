#pragma once

#include <utility>
#include <vector>

#include "kscale/engine/node_resources_fit.hpp"

namespace kscale::engine {

// A user predicate, compiled to a C function: 0 = fits, 1 = does not fit, anything else = it failed. `request` and
// `free` have the columns that it requested. Called without the GIL.
using UserPredicate = i32 (*)(const i64* request, const i64* free, i64 n_columns, i64 slots, i64 pod, i64 node);

// User predicates, which are checked last. A verdict may depend on anything of the node, so nothing is remembered or
// computed in closed form if there is one.
class UserPredicates {
 public:
  static constexpr std::size_t kMostColumns = 64;  // checked at the binding, as is the number of predicates

  void add(UserPredicate predicate, std::vector<i32> columns) { users_.push_back({predicate, std::move(columns)}); }
  bool empty() const { return users_.empty(); }

  Code check(const NodeResourcesFit& resources, const PodClasses& pods, i32 pod, i32 node) const {
    i64 request[kMostColumns], free[kMostColumns];
    for (std::size_t u = 0; u < users_.size(); ++u) {
      const User& user = users_[u];
      for (std::size_t c = 0; c < user.columns.size(); ++c) {
        request[c] = pods.request(pod)[user.columns[c]];
        free[c] = resources.free(user.columns[c], node);
      }
      const i64 columns = static_cast<i64>(user.columns.size());
      const i32 verdict = user.predicate(request, free, columns, resources.slots(node), pod, node);
      if (verdict == 0) continue;
      if (verdict != 1 && failed_ < 0) failed_ = static_cast<i32>(u);
      return code(kUserPredicate, static_cast<u32>(u));
    }
    return kFits;
  }

  i32 failed() const { return failed_; }  // number of a predicate that failed since the last call, or -1
  void forget_failure() { failed_ = -1; }

 private:
  struct User {
    UserPredicate predicate = nullptr;
    std::vector<i32> columns;
  };
  std::vector<User> users_;
  mutable i32 failed_ = -1;
};

}  // namespace kscale::engine
