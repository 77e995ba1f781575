#include "kscale/pod_metrics.hpp"

#include <limits>

#include "kscale/api_text.hpp"
#include "kscale/json_reader.hpp"

namespace kscale::pod_metrics {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// A quantity in milli-units, rounded away from zero: [+-]digits[.digits][suffix], if it fits and its whole units are
// these, rounded in the same way.
bool milli(std::string_view text, std::int64_t& out) noexcept {
  std::size_t at = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) ++at;
  std::uint64_t mantissa = 0;
  int digits = 0, fraction = 0;
  bool point = false;
  for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !point)); ++at) {
    if (text[at] == '.') {
      point = true;
      continue;
    }
    mantissa = mantissa * 10 + static_cast<std::uint64_t>(text[at] - '0');
    fraction += point;
    if (++digits > 18) return false;
  }
  if (digits == 0 || (negative && fraction > 0)) return false;  // Go may round the latter towards zero
  int power = 3;  // of ten, to milli
  int binary = 0;
  const std::string_view suffix = text.substr(at);
  if (suffix.size() == 2 && suffix[1] == 'i') {
    constexpr std::string_view kUnits = "KMGTPE";
    const std::size_t unit = kUnits.find(suffix[0]);
    if (unit == std::string_view::npos) return false;
    if (negative) return false;  // Go wraps large ones
    binary = 10 * (static_cast<int>(unit) + 1);
  } else if (suffix.size() == 1) {
    constexpr std::string_view kUnits = "num.kMGTPE";
    const std::size_t unit = kUnits.find(suffix[0]);
    if (unit == std::string_view::npos || suffix[0] == '.') return false;
    power += 3 * (static_cast<int>(unit) - 3);
  } else if (!suffix.empty()) {
    return false;
  }
  power -= fraction;
  using Wide = unsigned __int128;
  Wide value = mantissa;
  if (binary > 0) {
    if (value >> (100 - binary)) return false;
    value <<= binary;
  }
  for (; power > 0; --power) {
    if (value > static_cast<Wide>(kMost)) return false;
    value *= 10;
  }
  bool rest = false;
  for (; power < 0; ++power) {
    rest = rest || value % 10 != 0;
    value /= 10;
  }
  value += rest;
  if (value > static_cast<Wide>(kMost)) return false;
  out = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
  return true;
}

// One part of a Go duration, `15.1s`, or several, `1m30s`, in nanoseconds.
bool duration(std::string_view text, std::int64_t& out) noexcept {
  if (text == "0") {
    out = 0;
    return true;
  }
  out = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    std::int64_t whole = 0, part = 0, unit_of_part = 1;
    const std::size_t begin = at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (at - begin > 8) return false;
      whole = whole * 10 + (text[at] - '0');
    }
    if (at == begin) return false;
    if (at < text.size() && text[at] == '.') {
      const std::size_t from = ++at;
      for (; at < text.size() && is_digit(text[at]); ++at) {
        if (at - from > 5) return false;
        part = part * 10 + (text[at] - '0');
        unit_of_part *= 10;
      }
      if (at == from) return false;
    }
    const std::string_view rest = text.substr(at);
    std::int64_t unit = 0;
    if (rest.starts_with("ms")) unit = 1'000'000, at += 2;
    else if (rest.starts_with("us")) unit = 1'000, at += 2;
    else if (rest.starts_with("ns")) unit = 1, at += 2;
    else if (rest.starts_with("s")) unit = 1'000'000'000, at += 1;
    else if (rest.starts_with("m")) unit = 60'000'000'000, at += 1;
    else return false;
    if (whole > 100'000'000 / (unit > 1'000'000'000 ? 60 : 1)) return false;
    out += whole * unit + part * unit / unit_of_part;
    if (out < 0 || out > (std::int64_t{1} << 61)) return false;
  }
  return !text.empty();
}

// The reader, with what it makes of the text.
struct Reader {
  JsonReader json;
  PodMetricsList& out;

  bool text(std::string_view& found) {
    bool escaped = false;
    return json.eat('"') && json.string(found, escaped) && !escaped;
  }
  bool null() {
    json.space();
    return json.p < json.end && *json.p == 'n' && json.word("null");
  }
  // Calls `of(key)` for every key, which must read its value.
  template <typename Of>
  bool object(Of of) {
    if (!json.eat('{')) return false;
    if (json.eat('}')) return true;
    do {
      std::string_view key;
      if (!text(key) || !json.eat(':') || !of(key)) return false;
    } while (json.eat(','));
    return json.eat('}');
  }
  template <typename Of>
  bool list(Of of) {
    if (!json.eat('[')) return false;
    if (json.eat(']')) return true;
    do {
      if (!of()) return false;
    } while (json.eat(','));
    return json.eat(']');
  }

  bool once(unsigned& seen, unsigned bit) {
    const bool fresh = (seen & bit) == 0;
    seen |= bit;
    return fresh;
  }

  // Reads a field that columns do not have. `found` is untouched for null, and for what makes the item unusual: another
  // type, escapes, a second value.
  bool text_if_usual(std::string_view& found, bool is_first) {
    if (null()) return true;
    if (is_first && json.peek('"')) {
      bool escaped = false;
      std::string_view value;
      if (!json.eat('"') || !json.string(value, escaped)) return false;
      if (escaped) out.only_usage = false;
      else found = value;
      return true;
    }
    out.only_usage = false;
    return json.skip();
  }

  bool usage(std::int64_t row) {
    if (null()) return true;
    return object([&](std::string_view resource) {
      const auto number = static_cast<std::size_t>(out.resources.number(resource));
      if (number == out.amount.size()) {
        if (number == 64) return false;
        out.amount.emplace_back();
        out.present.emplace_back();
      }
      auto& amounts = out.amount[number];
      auto& present = out.present[number];
      if (amounts.size() > static_cast<std::size_t>(row)) return false;  // comes twice
      amounts.resize(static_cast<std::size_t>(row) + 1);
      present.resize(static_cast<std::size_t>(row) + 1);
      std::string_view amount;
      json.space();
      if (json.p < json.end && *json.p != '"') {  // a number
        const char* begin = json.p;
        if (!(is_digit(*begin) || *begin == '-') || !json.number()) return false;
        amount = {begin, static_cast<std::size_t>(json.p - begin)};
      } else if (!text(amount)) {
        return false;
      }
      present.back() = 1;
      if (!milli(amount, amounts.back()))
        out.odd.push_back({Odd::amount, row, static_cast<std::int32_t>(number), amount});
      return true;
    });
  }

  bool container() {
    const auto row = static_cast<std::int64_t>(out.container.size());
    out.container.push_back(-1);
    unsigned seen = 0;
    std::string_view name;
    const bool ok = object([&](std::string_view key) {
      if (key == "name") return once(seen, 1) && text(name);
      if (key == "usage") return once(seen, 2) && usage(row);
      return json.skip();
    });
    out.container.back() = out.containers.number(name);
    return ok;
  }

  bool metadata(std::string_view& name, std::string_view& name_space, std::int32_t& labels) {
    unsigned seen = 0;
    return object([&](std::string_view key) {
      if (key == "name") return once(seen, 1) && text(name);
      if (key == "namespace") return once(seen, 2) && text(name_space);
      if (key == "labels") {
        if (!once(seen, 4)) return false;
        if (null()) return true;
        json.space();
        const char* begin = json.p;
        std::string_view value;
        if (!object([&](std::string_view) { return text(value); })) return false;
        labels = out.label_texts.number({begin, static_cast<std::size_t>(json.p - begin)});
        return true;
      }
      if (key == "creationTimestamp") {
        std::string_view when;
        if (!text_if_usual(when, once(seen, 8))) return false;
        if (when.data() != nullptr) out.created.number(when);
        return true;
      }
      out.only_usage = false;
      return json.skip();
    });
  }

  bool item() {
    const auto row = static_cast<std::int64_t>(out.name.size());
    std::string_view name, name_space, when, window = "0s";
    std::int32_t labels = -1;
    unsigned seen = 0;
    const bool ok = object([&](std::string_view key) {
      if (key == "metadata") return once(seen, 1) && metadata(name, name_space, labels);
      if (key == "timestamp") return once(seen, 2) && (null() || text(when));
      if (key == "window") return once(seen, 4) && text(window);
      if (key == "containers") return once(seen, 8) && (null() || list([&] { return container(); }));
      if (key == "kind") {
        std::string_view kind;
        return text(kind) && kind == "PodMetrics";
      }
      if (key == "apiVersion") {
        std::string_view version;
        if (!text_if_usual(version, once(seen, 16))) return false;
        const std::size_t slash = version.rfind('/');
        if (version.data() != nullptr && (slash == version.npos || version.substr(0, slash) != "metrics.k8s.io"))
          out.only_usage = false;
        return true;
      }
      out.only_usage = false;
      return json.skip();
    });
    if (!ok) return false;
    out.name.push_back(name);
    out.name_space.push_back(out.namespaces.number(name_space));
    out.labels.push_back(labels);
    out.time.push_back(kZeroTime);
    out.window.push_back(0);
    if (!when.empty() && !moment(when, out.time.back())) out.odd.push_back({Odd::time, row, -1, when});
    if (!duration(window, out.window.back())) out.odd.push_back({Odd::window, row, -1, window});
    out.container_end.push_back(static_cast<std::int64_t>(out.container.size()));
    return true;
  }
};

}  // namespace

bool PodMetricsList::read(const char* text, std::size_t size) {
  Reader reader{{text, text + size}, *this};
  unsigned seen = 0;
  const bool ok = reader.object([&](std::string_view key) {
    if (key == "items") return reader.once(seen, 1) && (reader.null() || reader.list([&] { return reader.item(); }));
    if (key == "kind") {
      std::string_view kind;
      return reader.once(seen, 2) && reader.text(kind) && kind == "PodMetricsList";
    }
    return reader.json.skip();
  });
  reader.json.space();
  if (!ok || reader.json.p != reader.json.end) return false;
  for (auto& each : amount) each.resize(container.size());
  for (auto& each : present) each.resize(container.size());
  return true;
}

}  // namespace kscale::pod_metrics
