// One list on several threads. Where an item begins in the middle of a text cannot be known without reading what is in
// front of it; it can be guessed. Each thread begins at a guess, and what it read counts only if the thread before it
// came to exactly that place as the beginning of an item: so a wrong guess costs time and changes nothing.
#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "kscale/json_reader.hpp"
#include "kscale/parallel.hpp"
#include "kscale/projection.hpp"

namespace kscale {
namespace {

// How items follow each other: from the end of one to the first key of the next, and that one's second key.
struct Seam {
  std::string_view lead, second;
  std::ptrdiff_t brace = 0;  // where in `lead` the next item begins

  // False if the first items are no objects, or there is only one.
  bool learn(JsonReader in) {
    std::string_view text;
    bool escaped;
    if (!in.skip() || in.p[-1] != '}') return false;
    const char* tail = in.p - 1;
    if (!in.eat(',') || !in.peek('{')) return false;
    brace = in.p - tail;
    ++in.p;
    if (!in.eat('"') || !in.string(text, escaped)) return false;
    lead = {tail, static_cast<std::size_t>(in.p - tail)};
    if (in.eat(':') && in.eat('"') && in.string(text, escaped) && in.eat(',') && in.peek('"')) {
      const char* start = in.p++;
      if (in.string(text, escaped)) second = {start, static_cast<std::size_t>(in.p - start)};
    }
    return true;
  }

  bool follows(JsonReader in) const {
    std::string_view text;
    bool escaped;
    if (second.empty()) return true;
    return in.eat(':') && in.eat('"') && in.string(text, escaped) && in.eat(',') && in.peek('"') &&
           std::string_view(in.p, static_cast<std::size_t>(in.end - in.p)).starts_with(second);
  }

  // Where the first item behind `from` seems to begin; null if nowhere before `to`.
  const char* guess(const char* from, const char* to, const char* end) const {
    const std::string_view text(from, static_cast<std::size_t>(to - from));
    for (std::size_t at = text.find(lead); at != text.npos; at = text.find(lead, at + 1)) {
      if (follows({from + at + lead.size(), end})) return from + at + brace;
    }
    return nullptr;
  }
};

}  // namespace

bool Projector::items_on_threads(const char* data, const char*& p, const char* end, ItemKind kind,
                                 Threading how, ScannedItems& out) {
  const std::ptrdiff_t parts = std::min<std::ptrdiff_t>(how.threads, (end - p) / how.grain);
  std::vector<const char*> starts;
  Seam seam;
  if (parts > 1 && seam.learn({p, end})) {
    for (std::ptrdiff_t part = 1; part < parts; ++part) {
      const char* from = p + (end - p) / parts * part;
      const char* to = part + 1 < parts ? p + (end - p) / parts * (part + 1) : end;
      if (const char* found = seam.guess(from, to, end)) starts.push_back(found);
    }
  }
  struct Part {
    Projector own;
    ScannedItems items;
    const char* p;
    Stop stop;
    std::exception_ptr failure;
  };
  std::vector<Part> others;
  others.reserve(starts.size());
  if (!starts.empty()) patterns_.share();
  for (const char* start : starts) {
    others.push_back({empty(), {}, start, Stop::kError, nullptr});
  }
  Stop stop;
  {
    Threads running;
    for (std::size_t i = 0; i < others.size(); ++i) {
      running.start([&, i] {
        Part& part = others[i];
        try {
          part.stop = part.own.items(data, part.p, end, kind, std::span(starts).subspan(i + 1), part.items);
        } catch (...) {  // no memory
          part.failure = std::current_exception();
        }
      });
    }
    stop = items(data, p, end, kind, starts, out);
  }
  patterns_.settle();
  for (const Part& part : others) patterns_.take(part.own.patterns_);
  while (stop == Stop::kStop) {
    Part& part = others[static_cast<std::size_t>(std::ranges::lower_bound(starts, p) - starts.begin())];
    if (part.failure) std::rethrow_exception(part.failure);
    merge(part.own, std::move(part.items), out);
    part.items = {};
    p = part.p;
    stop = part.stop;
  }
  return stop == Stop::kEnd;
}

void Projector::merge(const Projector& other, ScannedItems&& more, ScannedItems& out) {
  // Their texts in the order in which they appeared: so the numbers are those of one reading from front to back.
  std::vector<std::vector<std::int32_t>> number(tables_.size());
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    const TextTable& texts = other.tables_[table];
    for (std::size_t i = 0; i < texts.count(); ++i) number[table].push_back(tables_[table].number(texts.text(i)));
  }
  std::vector<std::int32_t> combined, numbers(tables_.size());
  std::string key;
  for (std::size_t i = 0; i < other.combinations_.size(); i += numbers.size()) {
    for (std::size_t table = 0; table < numbers.size(); ++table) {
      const std::int32_t theirs = other.combinations_[i + table];
      numbers[table] = theirs < 0 ? -1 : number[table][static_cast<std::size_t>(theirs)];
    }
    combined.push_back(combine(numbers.data(), key));
  }
  for (const std::int32_t theirs : more.combined) {
    out.combined.push_back(theirs < 0 ? theirs : combined[static_cast<std::size_t>(theirs)]);
  }
  out.append(std::move(more));
}

}  // namespace kscale
