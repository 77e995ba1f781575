// One list on several threads, while the caller works on what was read already. Where an item begins in the middle of a
// text cannot be known without reading what is in front of it; it can be guessed. Each thread begins at a guess, and
// what it read counts only if the thread before it came to exactly that place as the beginning of an item: so a wrong
// guess costs time and changes nothing.
#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "kscale/json_reader.hpp"
#include "kscale/parallel.hpp"
#include "kscale/projection.hpp"

namespace kscale {
namespace {

// The text between two items: from the end of one item to the first key of the next, and the second key of the next.
struct Seam {
  std::string_view lead, second;
  std::ptrdiff_t brace = 0;  // where in `lead` the next item begins

  // Learns the text from the first two items. Returns false if they are no objects, or there is only one.
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

  // Guesses where the first item behind `from` begins; null if no item seems to begin before `to`.
  const char* guess(const char* from, const char* to, const char* end) const {
    const std::string_view text(from, static_cast<std::size_t>(to - from));
    for (std::size_t at = text.find(lead); at != text.npos; at = text.find(lead, at + 1)) {
      if (follows({from + at + lead.size(), end})) return from + at + brace;
    }
    return nullptr;
  }
};

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

}  // namespace

bool Projector::items_on_threads(const char* data, const char*& p, const char* end, ItemKind kind,
                                 Threading how, const Publish& publish, ScannedItems& out) {
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
          part.stop = part.own.items(data, part.p, end, kind, std::span(starts).subspan(i + 1), kNever, publish,
                                     part.items);
        } catch (...) {  // no memory
          part.failure = std::current_exception();
        }
      });
    }
    stop = items(data, p, end, kind, starts, how.grain, publish, out);
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

FreshTexts Projector::texts_since(std::vector<std::size_t>& told) const {
  const std::size_t size = tables_.size();
  told.resize(size + 1);
  FreshTexts fresh;
  for (std::size_t table = 0; table < size; ++table) {
    std::vector<std::string>& texts = fresh.texts.emplace_back();
    for (std::size_t& i = told[table]; i < tables_[table].count(); ++i) texts.push_back(tables_[table].text(i));
  }
  fresh.combinations.assign(combinations_.begin() + static_cast<std::ptrdiff_t>(told[size]), combinations_.end());
  told[size] = combinations_.size();
  return fresh;
}

void Projector::adopt(const FreshTexts& fresh, Renumbering& numbers) {
  // Their texts in the order in which they appeared: so the numbers are those of one reading from front to back.
  const std::size_t size = tables_.size();
  numbers.texts.resize(size);
  for (std::size_t table = 0; table < size; ++table) {
    for (const std::string& text : fresh.texts[table]) numbers.texts[table].push_back(tables_[table].number(text));
  }
  std::vector<std::int32_t> own(size);
  std::string key;
  for (std::size_t i = 0; i < fresh.combinations.size(); i += size) {
    for (std::size_t table = 0; table < size; ++table) {
      const std::int32_t theirs = fresh.combinations[i + table];
      own[table] = theirs < 0 ? -1 : numbers.texts[table][static_cast<std::size_t>(theirs)];
    }
    numbers.combinations.push_back(combine(own.data(), key));
  }
}

void Projector::copy_texts(FreshTexts&& fresh) {
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    for (std::string& text : fresh.texts[table]) tables_[table].push(std::move(text));
  }
  combinations_.insert(combinations_.end(), fresh.combinations.begin(), fresh.combinations.end());
}

void Projector::take(ScannedItems&& more, const Renumbering& numbers, ScannedItems& out) {
  for (const std::int32_t theirs : more.combined) {
    out.combined.push_back(theirs < 0 ? theirs : numbers.combinations[static_cast<std::size_t>(theirs)]);
  }
  out.append(std::move(more));
}

void Projector::merge(const Projector& other, ScannedItems&& more, ScannedItems& out) {
  std::vector<std::size_t> told;
  Renumbering numbers;
  adopt(other.texts_since(told), numbers);
  take(std::move(more), numbers, out);
}

ListScan::ListScan(Projector& to, const char* data, std::size_t size, ItemKind kind, Threading how, bool ahead)
    : to_(to) {
  if (!ahead || how.threads == 1 || static_cast<std::int64_t>(size) / how.grain < 2) {
    Piece& all = pieces_.emplace_back();
    const Publish nothing = [](ScannedItems&) { return true; };
    ok_ = to.scan(data, size, kind, how, all.items, head_, ahead ? nothing : Publish());
    ended_ = true;
    return;
  }
  --how.threads;
  first_ = std::ranges::all_of(to.tables_, [](const TextTable& each) { return each.count() == 0; });
  own_.emplace(to.empty());
  own_->patterns_ = std::move(to.patterns_);
  own_->patterns_.known_parts().clear();  // their numbers are those of the other's texts
  running_.start([=, this] { read(data, size, kind, how); });
}

ListScan::~ListScan() {
  if (!own_) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    room_.notify_one();
  }
  running_.join();
  if (first_) {
    to_.tables_ = std::move(own_->tables_);
    to_.combined_ = std::move(own_->combined_);
    to_.combinations_ = std::move(own_->combinations_);
  }
  to_.patterns_ = std::move(own_->patterns_);
  to_.patterns_.known_parts().clear();
  to_.frame_ = std::move(own_->frame_);
  to_.forget_combinations();
}

void ListScan::read(const char* data, std::size_t size, ItemKind kind, Threading how) {
  try {
    ScannedItems rest;
    const Publish publish = [this](ScannedItems& items) {
      const bool wanted = add(std::move(items), false);
      items = {};
      return wanted;
    };
    ok_ = own_->scan(data, size, kind, how, rest, head_, publish);
    add(std::move(rest), true);
  } catch (...) {  // no memory
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    ended_ = true;
    more_.notify_one();
  }
}

bool ListScan::add(ScannedItems&& items, bool last) {
  Piece piece{std::move(items), own_->texts_since(told_)};
  const std::int64_t end = piece.end();
  std::unique_lock lock(mutex_);
  pieces_.push_back(std::move(piece));
  ended_ = last;
  more_.notify_one();
  if (!last) room_.wait(lock, [&] { return stopped_ || end - done_ <= kAhead; });
  return !stopped_;
}

bool ListScan::next(ScannedItems& out) {
  std::vector<Piece> pieces;
  {
    std::unique_lock lock(mutex_);
    done_ = taken_;
    room_.notify_one();
    more_.wait(lock, [this] { return ended_ || !pieces_.empty(); });
    if (failure_) std::rethrow_exception(failure_);
    while (!pieces_.empty() && taken_ - done_ < kAtOnce) {
      taken_ = std::max(taken_, pieces_.front().end());
      pieces.push_back(std::move(pieces_.front()));
      pieces_.pop_front();
    }
  }
  for (Piece& piece : pieces) {
    if (first_ || !own_) {
      if (own_) to_.copy_texts(std::move(piece.texts));
      out.combined.insert(out.combined.end(), piece.items.combined.begin(), piece.items.combined.end());
      out.append(std::move(piece.items));
    } else {
      to_.adopt(piece.texts, numbers_);
      Projector::take(std::move(piece.items), numbers_, out);
    }
  }
  return !pieces.empty();
}

bool ListScan::finish(Span head[3]) const {
  std::copy(head_, head_ + 3, head);
  return ok_;
}

}  // namespace kscale
