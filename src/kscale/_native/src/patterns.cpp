#include "kscale/patterns.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "kscale/dispatch.hpp"
#include "kscale/text_hash.hpp"

#if KSCALE_HAS_CLONES
#include <immintrin.h>
#endif

namespace kscale {
namespace {

constexpr std::size_t kBytesAhead = 8192;  // prefetch distance: about the text of one pod

// Returns the length of the common prefix of `a` and `b`, at most `most`. Prefetches the bytes that follow `b`.
std::size_t common_bytes(const char* a, const char* b, std::size_t most) {
  std::size_t at = 0;
#if defined(__SSE2__)
  const auto same = [&](std::size_t from) {
    return _mm_cmpeq_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + from)),
                          _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + from)));
  };
  for (; most - at >= 64; at += 64) {
    __builtin_prefetch(b + at + kBytesAhead);
    const __m128i part[4] = {same(at), same(at + 16), same(at + 32), same(at + 48)};
    const __m128i all = _mm_and_si128(_mm_and_si128(part[0], part[1]), _mm_and_si128(part[2], part[3]));
    if (_mm_movemask_epi8(all) == 0xffff) continue;
    std::uint64_t equal = 0;
    for (int i = 3; i >= 0; --i) equal = equal << 16 | static_cast<unsigned>(_mm_movemask_epi8(part[i]));
    return at + static_cast<std::size_t>(std::countr_one(equal));
  }
  for (; most - at >= 16; at += 16) {
    const auto others = ~static_cast<unsigned>(_mm_movemask_epi8(same(at))) & 0xffffu;
    if (others) return at + static_cast<std::size_t>(std::countr_zero(others));
  }
#else
  while (most - at >= 8 && std::memcmp(a + at, b + at, 8) == 0) at += 8;
#endif
  while (at < most && a[at] == b[at]) ++at;
  return at;
}

// Returns the next quote, backslash, control character or, with `ascii`, character beyond ASCII; `end` if there is none.
const char* next_special(const char* p, const char* end, bool ascii) {
  const char* const found = find_special(p, end);
  if (!ascii || is_ascii({p, static_cast<std::size_t>(found - p)})) p = found;
  for (; p < end; ++p) {
    const auto c = static_cast<unsigned char>(*p);
    if (c == '"' || c == '\\' || c < 0x20 || (ascii && c >= 0x80)) break;
  }
  return p;
}

#if KSCALE_HAS_CLONES
// Returns a bit for each of 32 bytes: whether it is the same in both texts.
[[gnu::target("avx2,bmi")]] inline std::uint32_t same_bytes_avx2(const char* a, const char* b) {
  const __m256i one = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
  const __m256i other = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(one, other)));
}

// `common_bytes` for processors with AVX2.
[[gnu::target("avx2,bmi")]] std::size_t common_bytes_avx2(const char* a, const char* b, std::size_t most) {
  std::size_t at = 0;
  for (; most - at >= 64; at += 64) {
    __builtin_prefetch(b + at + kBytesAhead);
    const std::uint64_t low = same_bytes_avx2(a + at, b + at), high = same_bytes_avx2(a + at + 32, b + at + 32);
    const std::uint64_t equal = high << 32 | low;
    if (~equal != 0) return at + static_cast<std::size_t>(std::countr_one(equal));
  }
  _mm256_zeroupper();  // the compiler leaves it out here, and slows down all SSE code from here on
  return at + common_bytes(a + at, b + at, most - at);
}

// `next_special` for processors with AVX2.
[[gnu::target("avx2,bmi")]] const char* next_special_avx2(const char* p, const char* end, bool ascii) {
  const __m256i quote = _mm256_set1_epi8('"'), slash = _mm256_set1_epi8('\\'), last = _mm256_set1_epi8(0x1f);
  const std::uint32_t others = ascii ? 0xffffffffu : 0;
  for (; end - p >= 32; p += 32) {
    const __m256i text = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i control = _mm256_cmpeq_epi8(_mm256_min_epu8(text, last), text);
    const __m256i marks = _mm256_or_si256(_mm256_cmpeq_epi8(text, quote), _mm256_cmpeq_epi8(text, slash));
    const auto high = static_cast<std::uint32_t>(_mm256_movemask_epi8(text)) & others;
    const auto found = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_or_si256(marks, control))) | high;
    if (found) return p + std::countr_zero(found);
  }
  _mm256_zeroupper();
  return next_special(p, end, ascii);
}

bool has_avx2() { return cpu_level != CpuLevel::kDefault; }
#endif

std::size_t common(const char* a, const char* b, std::size_t most) {
#if KSCALE_HAS_CLONES
  if (has_avx2()) return common_bytes_avx2(a, b, most);
#endif
  return common_bytes(a, b, most);
}

const char* special(const char* p, const char* end, bool ascii) {
#if KSCALE_HAS_CLONES
  if (has_avx2()) return next_special_avx2(p, end, ascii);
#endif
  return next_special(p, end, ascii);
}

// Whether `in` is at a text that may replace a free part. If so, `in` moves behind the text.
bool is_another(const FreePart& part, JsonReader& in) {
  if (part.rule >= 0) return in.skip();
  if (*in.p != '"') return !part.noted && *in.p != '{' && *in.p != '[' && in.scalar();
  const char* const behind = special(in.p + 1, in.end, part.noted);
  if (behind < in.end && *behind == '"') {  // a plain string
    in.p = behind + 1;
    return true;
  }
  return !part.noted && in.scalar();
}

// Returns the cache key of a facet of a workload.
std::uint64_t key_of(std::uint64_t workload, std::int32_t rule) {
  return workload + (static_cast<std::uint64_t>(rule) + 1) * 0x9e3779b97f4a7c15u;
}

// Returns the cache key of a text that differs from a pattern at position `at`: a hash of the position and of its next
// 24 bytes.
std::uint64_t key_of(std::int32_t pattern, std::int32_t at, const char* other, const char* end) {
  const std::string_view next(other, std::min<std::size_t>(24, static_cast<std::size_t>(end - other)));
  const std::uint64_t place = static_cast<std::uint64_t>(pattern) << 32 | static_cast<std::uint32_t>(at);
  return TextHash{}(next) + place * 0x9e3779b97f4a7c15u;
}

// Returns the memory that a pattern takes, in bytes.
std::size_t room_of(const Pattern& pattern) {
  std::size_t room = sizeof pattern + pattern.text.size() + pattern.kept.size() +
                     pattern.free.size() * sizeof(FreePart) + pattern.notes.size() * sizeof(PatternNote);
  for (const PatternFacet& each : pattern.facets) room += sizeof each + each.text.size();
  return room;
}

}  // namespace

const KnownParts::Part* KnownParts::find(std::uint64_t key, std::int32_t rule, const char* p, const char* end,
                                         bool& taken) const {
  const Part* found = parts_.find(key, [=](const Part& each) { return each.key == key && each.rule == rule; });
  taken = found != nullptr;
  if (found == nullptr) return nullptr;
  return std::string_view(p, static_cast<std::size_t>(end - p)).starts_with(found->text) ? found : nullptr;
}

void KnownParts::store(std::uint64_t key, std::int32_t rule, std::string_view text, std::int32_t number) {
  if (text.size() > kLongest || (text.front() != '{' && text.front() != '[')) return;
  if (bytes_ > kRoom) clear();
  Part& to = parts_.place(key, [=](const Part& each) { return each.key == key && each.rule == rule; });
  bytes_ = bytes_ - to.text.size() + text.size();
  to.key = key;
  to.rule = rule;
  to.number = number;
  to.text = text;
}

bool is_same(const KnownNumbers::Key& one, const KnownNumbers::Key& other) {
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < one.size(); ++i) different |= one[i] ^ other[i];
  return different == 0;
}

std::uint64_t KnownNumbers::hash_of(const Key& key) {
  std::uint64_t hash = 0;
  for (const std::uint64_t part : key) hash = std::rotl(hash ^ part, 29) * 0x9e3779b97f4a7c15u;
  return hash >> 32;
}

std::int32_t KnownNumbers::find(const Key& key) const {
  const Entry* found = entries_.find(hash_of(key), [&key](const Entry& each) { return is_same(each.key, key); });
  return found == nullptr ? -1 : found->number;
}

void KnownNumbers::store(const Key& key, std::int32_t number) {
  entries_.place(hash_of(key), [&key](const Entry& each) { return is_same(each.key, key); }) = {key, number};
}

std::uint64_t Pattern::next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

PatternPlace Pattern::place(std::int32_t at) const {
  PatternPlace made;
  while (static_cast<std::size_t>(made.parts) < free.size() && free[static_cast<std::size_t>(made.parts)].end <= at) {
    ++made.parts;
  }
  made.behind = at - (made.parts ? free[static_cast<std::size_t>(made.parts) - 1].end : 0);
  return made;
}

const PatternTree::Branch* PatternTree::branch(const Trace& trace, char next) const {
  const std::vector<Branch>& all = branches_[static_cast<std::size_t>(trace.pattern)];
  const std::int64_t wanted = where(trace.at, next);
  const auto found = std::ranges::lower_bound(all, wanted, {}, &Branch::where);
  return found == all.end() || found->where != wanted ? nullptr : &*found;
}

const Pattern* PatternTree::follow(JsonReader& in, const KnownParts& known, Trace& trace, std::int32_t first,
                                   std::uint64_t workload) const {
  trace.tree = this;
  trace.pattern = -1;
  trace.at = trace.value_at = 0;
  trace.next = 0;
  trace.stretches.clear();
  trace.others.clear();
  if (static_cast<std::size_t>(first) >= patterns_.size()) return nullptr;
  trace.pattern = first;
  trace.stretches.push_back({0, first, 0});
  const char* const start = in.p;
  const char* p = start;
  const Pattern* pattern = &patterns_[static_cast<std::size_t>(first)];
  std::size_t t = 0;
  // Records the offset between the value and the pattern's text, which holds from the next free part on.
  const auto shift = [&] {
    const auto by = static_cast<std::int32_t>(p - start) - static_cast<std::int32_t>(t);
    const Stretch& last = trace.stretches.back();
    if (last.shift != by || last.pattern != trace.pattern) {
      trace.stretches.push_back({static_cast<std::int32_t>(trace.next), trace.pattern, by});
    }
  };
  for (;;) {
    const std::size_t left = std::min(pattern->text.size() - t, static_cast<std::size_t>(in.end - p));
    const std::size_t same = common(pattern->text.data() + t, p, left);
    t += same;
    p += same;
    if (t == pattern->text.size()) break;
    if (p == in.end) return nullptr;
    const auto here = static_cast<std::int32_t>(t);
    const std::vector<FreePart>& free = pattern->free;
    while (trace.next < free.size() && free[trace.next].end < here) ++trace.next;
    if (trace.next < free.size() && free[trace.next].begin <= here) {
      const FreePart& part = free[trace.next];
      const char* const other = p;
      p -= here - part.begin;
      JsonReader own{p, in.end};
      if (part.rule >= 0) {
        // Pods of one workload mostly have the same labels and owners. Other texts have a key each.
        bool taken = true;
        std::uint64_t key = key_of(workload, part.rule);
        const KnownParts::Part* before = workload != 0 ? known.find(key, part.rule, p, in.end, taken) : nullptr;
        if (before == nullptr && taken) {
          key = key_of(trace.pattern, here, other, in.end);
          before = known.find(key, part.rule, p, in.end, taken);
        }
        trace.others.push_back({static_cast<std::int32_t>(trace.next), before ? before->number : -1, key});
        if (before != nullptr) own.p += before->text.size();
      }
      if (own.p != p || is_another(part, own)) {
        p = own.p;
        t = static_cast<std::size_t>(part.end);
        shift();
        ++trace.next;
        continue;
      }
      t = static_cast<std::size_t>(part.begin);
    }
    trace.at = static_cast<std::int32_t>(t);
    trace.value_at = static_cast<std::int32_t>(p - start);
    const Branch* other = branch(trace, *p);
    if (other == nullptr) return nullptr;
    trace.pattern = other->pattern;
    pattern = &patterns_[static_cast<std::size_t>(other->pattern)];
    t = static_cast<std::size_t>(other->begin);
    for (std::size_t ahead = 0; ahead < 256; ahead += 64) __builtin_prefetch(pattern->text.data() + t + ahead);
    __builtin_prefetch(pattern->free.data() + trace.next);
    __builtin_prefetch(branches_[static_cast<std::size_t>(other->pattern)].data());
    shift();
  }
  in.p = p;
  return pattern;
}

std::size_t PatternTree::add(Pattern pattern, const Trace& trace) {
  if (!patterns_.empty()) {
    if (trace.pattern < 0) return 0;
    // Up to the branch both patterns must have the same free parts, because traces of one are used for the other.
    const Pattern& before = patterns_[static_cast<std::size_t>(trace.pattern)];
    if (static_cast<std::size_t>(trace.value_at) >= pattern.text.size() || pattern.free.size() < trace.next) return 0;
    if (pattern.free.size() > trace.next && pattern.free[trace.next].begin < trace.value_at) return 0;
    Places places(trace);
    for (std::size_t i = 0; i < trace.next; ++i) {
      if (pattern.free[i].end != places.end_of(static_cast<std::int32_t>(i))) return 0;
      if (!pattern.free[i].takes(before.free[i])) return 0;
    }
    const std::int64_t to = where(trace.at, pattern.text[static_cast<std::size_t>(trace.value_at)]);
    std::vector<Branch>& all = branches_[static_cast<std::size_t>(trace.pattern)];
    const auto found = std::ranges::lower_bound(all, to, {}, &Branch::where);
    if (found != all.end() && found->where == to) return 0;
    all.insert(found, {to, static_cast<std::int32_t>(patterns_.size()), trace.value_at});
  }
  patterns_.push_back(std::move(pattern));
  branches_.emplace_back();
  return room_of(patterns_.back());
}

Patterns Patterns::beside() const {
  Patterns made;
  made.base_ = base_;
  made.trees_.resize(trees_.size());
  return made;
}

void Patterns::share() {
  settle();
  auto base = std::make_shared<Patterns>(std::move(*this));
  *this = base->beside();
  base_ = std::move(base);
}

void Patterns::settle() {
  if (base_ == nullptr) return;
  const std::shared_ptr<Patterns> base = std::move(base_);
  const Patterns own = std::move(*this);
  *this = std::move(*base);
  take(own);
}

void Patterns::take(const Patterns& other) {
  PatternTree::Trace trace;
  for (std::size_t place = 0; place < trees_.size(); ++place) {
    trees_[place].followed += other.trees_[place].followed;
    for (const Pattern& pattern : other.trees_[place].patterns()) {
      JsonReader in{pattern.text.data(), pattern.text.data() + pattern.text.size()};
      if (trees_[place].follow(in, known_, trace) == nullptr) learn(static_cast<std::int32_t>(place), pattern, trace);
    }
  }
}

const Pattern* Patterns::follow(std::int32_t place, JsonReader& in, PatternGuess& guess, std::uint64_t workload) {
  const auto at = static_cast<std::size_t>(place);
  const PatternTree& tree = base_ == nullptr ? trees_[at] : base_->trees_[at];
  const Pattern* found = nullptr;
  for (const std::int32_t each : {guess.last, guess.before}) {
    if (found == nullptr && each > 0) found = tree.follow(in, known_, trace_, each, workload);
  }
  if (found == nullptr) found = tree.follow(in, known_, trace_, 0, workload);
  if (found == nullptr && base_ != nullptr) found = trees_[at].follow(in, known_, trace_, 0, workload);
  if (found != nullptr && trace_.tree == &tree) guess.note(trace_.pattern);
  trees_[at].followed += found != nullptr;
  return found;
}

bool Patterns::wants(std::int32_t place, std::size_t size) const {
  const PatternTree& tree = trees_[static_cast<std::size_t>(place)];
  return size <= kLargest && tree.learnt <= kAnyway + tree.followed / kWorth;
}

void Patterns::learn(std::int32_t place, Pattern pattern, const PatternTree::Trace& trace) {
  PatternTree& to = trees_[static_cast<std::size_t>(place)];
  ++to.learnt;
  ++learnt_;
  bytes_ += to.add(std::move(pattern), trace);
  if (bytes_ <= kRoom) return;
  for (PatternTree& tree : trees_) tree.clear();
  bytes_ = 0;
}

}  // namespace kscale
