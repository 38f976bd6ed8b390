#include "scenario/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>
#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "scenario/diagnostics.h"

namespace lora_bench {

namespace {

// Ends the parsing of a text that must not be read further.
struct Refused {
  Diagnostic diagnostic;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string file, Diagnostics& diagnostics)
      : file_(std::move(file)), diagnostics_(diagnostics) {}

  [[nodiscard]] std::optional<Value> take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      refuse(mark, "a second document starts here", "one document per file");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    leaf(make_value(Value::Kind::kNull, place(mark)), mark, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    refuse_tag(mark, tag);
    leaf(make_value(Value::Kind::kScalar, place(mark), text, tag == "!"), mark, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) {
      refuse(mark, "an alias inside of what it stands for", "");
    }
    // Counted before it is copied: an alias bomb must not be expanded to be refused.
    count(mark, found->second.nodes);
    check_depth(mark, static_cast<int>(frames_.size()) + found->second.height);
    attach({found->second.value, 0, found->second.height, found->second.nodes});
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(Value::Kind::kList, mark, tag, anchor);
    frames_.back().brackets = style == YAML::EmitterStyle::Flow;
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Value::Kind::kMap, mark, tag, anchor);
    frames_.back().brackets = style == YAML::EmitterStyle::Flow;
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  // The innermost map or list in brackets that has not ended.
  [[nodiscard]] const Value* open_brackets() const {
    return frames_.empty() || !frames_.back().brackets ? nullptr : &frames_.back().value;
  }

 private:
  struct Node {
    Value value;
    YAML::anchor_t anchor = 0;
    int height = 1;
    std::int64_t nodes = 1;
    std::optional<Value> key = std::nullopt;  // of a map: read, its value not yet
    bool brackets = false;                    // written as {} or []
  };

  [[nodiscard]] Location place(const YAML::Mark& mark) const {
    return {file_, mark.line + 1, mark.column + 1};
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string what, std::string allowed) const {
    throw Refused{{place(mark), std::move(what), std::move(allowed), ""}};
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      refuse(mark, fmt::format("tag '{}'", tag), "no tags");
    }
  }

  void count(const YAML::Mark& mark, std::int64_t nodes) {
    total_ += nodes;
    if (total_ > kMaxYamlNodes) {
      refuse(mark, fmt::format("more than {} values, aliases expanded", kMaxYamlNodes), "");
    }
  }

  void check_depth(const YAML::Mark& mark, int depth) const {
    if (depth > kMaxYamlDepth) {
      refuse(mark, "nested too deeply", fmt::format("at most {} levels", kMaxYamlDepth));
    }
  }

  void open(Value::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    refuse_tag(mark, tag);
    count(mark, 1);
    check_depth(mark, static_cast<int>(frames_.size()) + 1);
    frames_.push_back({.value = make_value(kind, place(mark)), .anchor = anchor});
  }

  void close() {
    Node node = std::move(frames_.back());
    frames_.pop_back();
    attach(std::move(node));
  }

  void leaf(Value value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    count(mark, 1);
    attach({.value = std::move(value), .anchor = anchor});
  }

  void attach(Node node) {
    if (node.anchor != 0) {
      anchored_[node.anchor] = {node.value, 0, node.height, node.nodes, std::nullopt};
    }
    if (frames_.empty()) {
      root_ = std::move(node.value);
      return;
    }
    Node& parent = frames_.back();
    parent.height = std::max(parent.height, node.height + 1);
    parent.nodes += node.nodes;
    if (parent.value.kind == Value::Kind::kList) {
      parent.value.items.push_back(std::move(node.value));
    } else if (!parent.key) {
      parent.key = std::move(node.value);
    } else {
      attach_entry(parent, std::move(node.value));
    }
  }

  void attach_entry(Node& parent, Value value) {
    const Value key = std::move(*parent.key);
    parent.key.reset();
    if (key.kind != Value::Kind::kScalar) {
      diagnostics_.add(key.where, fmt::format("a key is {}", describe(key)), "a word as key");
      return;
    }
    if (value.kind == Value::Kind::kNull) {
      value.where = key.where;  // what is not there has no place of its own
    }
    for (const Value::Entry& entry : parent.value.entries) {
      if (entry.key == key.text) {
        diagnostics_.add(key.where, fmt::format("key '{}' a second time; first in line {}",
                                                key.text, entry.where.line));
        return;
      }
    }
    if (parent.value.entries.size() == kMaxYamlKeys) {
      throw Refused{{key.where, fmt::format("more than {} keys in a map", kMaxYamlKeys), "", ""}};
    }
    parent.value.entries.push_back({key.text, key.where, std::move(value)});
  }

  std::string file_;
  Diagnostics& diagnostics_;
  std::optional<Value> root_;
  std::vector<Node> frames_;
  std::map<YAML::anchor_t, Node> anchored_;
  std::int64_t total_ = 0;
  int documents_ = 0;
};

// Length of the UTF-8 sequence at `text[at]`, 0 if there is none.
std::size_t utf8_length(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length == 0 || at + length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(at + i) < 0x80 || byte(at + i) > 0xBF) {
      return 0;
    }
  }
  return length;
}

// The first byte that no text holds: a control character or broken UTF-8.
std::optional<Diagnostic> binary_content(const std::string& text, const std::string& file) {
  Location where{file, 1, 1};
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control =
        (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F;
    const std::size_t length = control ? 0 : utf8_length(text, at);
    if (length == 0) {
      return Diagnostic{where, fmt::format("not a text: byte 0x{:02X}", byte), "UTF-8 text", ""};
    }
    at += length;
    where.line += byte == '\n' ? 1 : 0;
    where.column = byte == '\n' ? 1 : where.column + 1;
  }
  return std::nullopt;
}

// The first tab that indents a line: what the parser says of it names neither tabs nor the place.
std::optional<Location> indenting_tab(const std::string& text, const std::string& file) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::size_t tab = line.substr(0, line.find_first_not_of(" \t")).find('\t');
    if (tab != std::string::npos) {
      return Location{file, number, static_cast<int>(tab) + 1};
    }
  }
  return std::nullopt;
}

}  // namespace

Value make_value(Value::Kind kind, Location where, std::string text, bool quoted) {
  Value value;
  value.kind = kind;
  value.where = std::move(where);
  value.text = std::move(text);
  value.quoted = quoted;
  return value;
}

const Value* Value::find(const std::string& key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) {
      return &entry.value;
    }
  }
  return nullptr;
}

std::optional<Value> parse_yaml(const std::string& text, const std::string& file,
                                Diagnostics& diagnostics) {
  if (static_cast<std::int64_t>(text.size()) > kMaxYamlBytes) {
    diagnostics.add({file, 0, 0}, fmt::format("{} bytes are too many", text.size()),
                    fmt::format("at most {} bytes", kMaxYamlBytes));
    return std::nullopt;
  }
  if (const auto binary = binary_content(text, file)) {
    diagnostics.add(binary->where, binary->what, binary->allowed);
    return std::nullopt;
  }
  TreeBuilder builder(file, diagnostics);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take();
  } catch (const Refused& refused) {
    const Diagnostic& why = refused.diagnostic;
    diagnostics.add(why.where, why.what, why.allowed);
  } catch (const YAML::Exception& error) {
    if (const auto tab = indenting_tab(text, file)) {
      diagnostics.add(*tab, "not YAML: a tab indents this line", "spaces");
    } else if (const Value* open = builder.open_brackets();
               open != nullptr && error.msg.find("flow") != std::string::npos) {
      const bool map = open->kind == Value::Kind::kMap;
      diagnostics.add(open->where,
                      fmt::format("not YAML: '{}' opens here and nothing closes it before line {}, "
                                  "column {}",
                                  map ? '{' : '[', error.mark.line + 1, error.mark.column + 1),
                      fmt::format("'{}' behind the last entry", map ? '}' : ']'));
    } else {
      diagnostics.add({file, error.mark.line + 1, error.mark.column + 1},
                      fmt::format("not YAML: {}", error.msg));
    }
  }
  return std::nullopt;
}

std::string describe(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return "empty";
    case Value::Kind::kList:
      return "a list";
    case Value::Kind::kMap:
      return "a map";
    case Value::Kind::kScalar:
      break;
  }
  constexpr std::size_t kShown = 40;
  const std::string shown =
      value.text.size() > kShown ? value.text.substr(0, kShown) + "..." : value.text;
  return value.quoted ? fmt::format("the string '{}'", shown) : fmt::format("'{}'", shown);
}

std::string canonical(const Value& value) {
  std::string text;
  switch (value.kind) {
    case Value::Kind::kNull:
      return "";
    case Value::Kind::kScalar:
      return value.text;
    case Value::Kind::kList:
      for (const Value& item : value.items) {
        text += text.empty() ? "" : ",";
        text += canonical(item);
      }
      return fmt::format("[{}]", text);
    case Value::Kind::kMap:
      for (const Value::Entry& entry : value.entries) {
        text += text.empty() ? "" : ",";
        text += fmt::format("{}:{}", entry.key, canonical(entry.value));
      }
      return fmt::format("{{{}}}", text);
  }
  return text;
}

void Diagnostics::add(Location where, std::string what, std::string allowed,
                      std::string suggestion) {
  Diagnostic diagnostic{std::move(where), std::move(what), std::move(allowed),
                        std::move(suggestion)};
  if (seen_.insert(to_string(diagnostic)).second) {
    diagnostics_.push_back(std::move(diagnostic));
  }
}

void Diagnostics::add_all(const std::vector<Diagnostic>& others) {
  for (const Diagnostic& other : others) {
    add(other.where, other.what, other.allowed, other.suggestion);
  }
}

void Diagnostics::throw_if_any() {
  if (diagnostics_.empty()) {
    return;
  }
  std::stable_sort(diagnostics_.begin(), diagnostics_.end(),
                   [](const Diagnostic& left, const Diagnostic& right) {
                     return std::tie(left.where.file, left.where.line, left.where.column) <
                            std::tie(right.where.file, right.where.line, right.where.column);
                   });
  throw UsageError(std::move(diagnostics_));
}

}  // namespace lora_bench
