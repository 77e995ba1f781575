// Watch events, one per line. An event contains no line end, so lines are found without parsing, and each thread gets
// complete lines.
#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "kscale/json_reader.hpp"
#include "kscale/parallel.hpp"
#include "kscale/projection.hpp"

namespace kscale {
namespace {

WatchType type_of(std::string_view text) {
  if (text == "ADDED") return kAdded;
  if (text == "MODIFIED") return kModified;
  if (text == "DELETED") return kDeleted;
  if (text == "BOOKMARK") return kBookmark;
  if (text == "ERROR") return kError;
  return kUnknown;
}

bool is_blank(const char* p, const char* end) {
  return std::all_of(p, end, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
}

const char* line_end(const char* p, const char* end) {
  const auto* found = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
  return found == nullptr ? end : found;
}

}  // namespace

bool Projector::event(const char* data, const char* p, const char* end, ItemKind kind, ScannedLines& out) {
  JsonReader in{p, end};
  bool typed = false, held = false;
  WatchType type = kUnknown;
  if (!in.eat('{') || in.peek('}')) return false;
  for (;;) {
    std::string_view key, text;
    bool escaped;
    if (!in.eat('"') || !in.string(key, escaped) || escaped || !in.eat(':')) return false;
    in.space();
    if (in.p == in.end) return false;
    if (key == "type") {
      if (typed || !in.eat('"') || !in.string(text, escaped)) return false;
      typed = true;
      type = type_of(text);
    } else if (key == "object") {
      if (held || *in.p != '{') return false;
      held = true;
      const Depth depth = !typed || type < kDeleted ? Depth::kTexts : type == kDeleted ? Depth::kNotes : Depth::kPlace;
      if (!item(data, in, kind, depth, out.items)) return false;
    } else if (!in.skip()) {
      return false;
    }
    if (in.eat(',')) continue;
    break;
  }
  if (!in.eat('}') || !typed || !held) return false;
  in.space();
  if (in.p != in.end) return false;
  if (type > kDeleted) out.items.combined.back() = kOdd;  // its type may come behind its object
  out.type.push_back(type);
  return true;
}

void Projector::some_lines(const char* data, const char* p, const char* end, ItemKind kind,
                           ScannedLines& out) {
  while (p < end) {
    const char* stop = line_end(p, end);
    if (!is_blank(p, stop)) {
      const std::size_t before = out.items.begin.size();
      out.begin.push_back(p - data);
      if (!event(data, p, stop, kind, out)) {
        const auto slots = static_cast<std::size_t>(slots_);
        if (out.items.begin.size() > before) out.items.pop(slots);
        at_.assign(slots, 0);
        length_.assign(slots, -1);
        out.items.add(p - data, stop - p, kOdd, slots, at_.data(), length_.data());
        out.type.push_back(kDamaged);
      }
    }
    p = stop + (stop < end ? 1 : 0);
  }
}

std::size_t Projector::lines(const char* data, std::size_t size, ItemKind kind, Threading how,
                             ScannedLines& out) {
  if (rules_.empty()) return 0;
  const char* end = data + size;
  const char* last = end;  // behind the last line end
  while (last > data && last[-1] != '\n') --last;
  struct Part {
    Projector own;
    ScannedLines lines;
    const char* p;
    const char* stop;
    std::exception_ptr failure;
  };
  const std::ptrdiff_t parts = std::min<std::ptrdiff_t>(how.threads, (last - data) / how.grain);
  std::vector<const char*> starts{data};
  for (std::ptrdiff_t part = 1; part < parts; ++part) {
    const char* start = line_end(data + (last - data) / parts * part, last) + 1;
    if (start < last && start > starts.back()) starts.push_back(start);
  }
  std::vector<Part> others;
  others.reserve(starts.size());
  if (starts.size() > 1) patterns_.share();
  for (std::size_t i = 1; i < starts.size(); ++i) {
    others.push_back({empty(), {}, starts[i], i + 1 < starts.size() ? starts[i + 1] : last, nullptr});
  }
  {
    Threads running;
    for (Part& part : others) {
      running.start([&part, data, kind] {
        try {
          part.own.some_lines(data, part.p, part.stop, kind, part.lines);
        } catch (...) {  // no memory
          part.failure = std::current_exception();
        }
      });
    }
    some_lines(data, data, starts.size() > 1 ? starts[1] : last, kind, out);
  }
  patterns_.settle();
  for (Part& part : others) {
    if (part.failure) std::rethrow_exception(part.failure);
    patterns_.take(part.own.patterns_);
    merge(part.own, std::move(part.lines.items), out.items);
    out.type.insert(out.type.end(), part.lines.type.begin(), part.lines.type.end());
    out.begin.insert(out.begin.end(), part.lines.begin.begin(), part.lines.begin.end());
    part.lines = {};
  }
  if (is_blank(last, end)) return size;
  // The rest is a part of a line, or a complete line whose line end has not arrived. It is complete if it can be read,
  // because no part of an object is an object.
  ScannedLines more;
  Projector own = empty();
  own.some_lines(data, last, end, kind, more);
  if (more.type.back() == kDamaged) return static_cast<std::size_t>(last - data);
  merge(own, std::move(more.items), out.items);
  out.type.push_back(more.type.back());
  out.begin.push_back(more.begin.back());
  return size;
}

}  // namespace kscale
