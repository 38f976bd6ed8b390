#include "scenario/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scenario/field_kinds.h"

namespace lora_bench {
namespace {

constexpr double kMaxMilliseconds = 3.6e6;
constexpr const char* kLawNames =
    "identical, distinct, uniform, one-vs-rest, blocks, {zipf: 0 to 16}, {hot: 0 to 1}, {trace: "
    "FILE}";

bool always(const Case&) { return true; }
bool of_model(const Case& spec) { return !spec.layer.model.empty(); }
bool of_own_shape(const Case& spec) { return !of_model(spec); }

std::string skew_text(const SkewLaw& law) {
  switch (law.kind) {
    case Skew::kZipf:
    case Skew::kHot:
      return fmt::format("{{{}: {}}}", name(law.kind), law.parameter);
    case Skew::kTrace:
      return fmt::format("{{trace: {}}}", law.trace_file);
    default:
      return std::string(name(law.kind));
  }
}

std::string rank_text(const RankLaw& law) {
  if (law.shares.empty()) {
    return kListText(law.list);
  }
  std::string text;
  for (const auto& [rank, share] : law.shares) {
    text += fmt::format("{}{}: {}", text.empty() ? "{" : ", ", rank, share);
  }
  return text + "}";
}

// Keys that shape the file, and marks.
std::vector<Field> fields_of_file() {
  return {
      {{"name", "word", "letters, digits and . _ + : = -", "the file's name",
        "name of the scenario, in every row"}},
      {{"question", "text", "any text", "none", "what the scenario answers"}},
      {{"tags", "word or list", "words", "[]", "free marks, to filter by"},
       [](const Reader& reader, Case& target, FieldContext&) { reader.words(target.tags); }},
      {{"include", "path or list", "files beside or below this one, or in the scenario folder",
        "[]", "files whose keys come first; keys of this file replace them"}},
      {{"sweep", "map or list of maps", "fields with lists of values, `product`, `zip`", "none",
        "the points of the scenario"}},
      {{"cases", "list of maps", "maps of fields, each with a `name` if you like", "none",
        "named points; multiplied with `sweep` if there is one"}},
  };
}

std::vector<Field> fields_of_shape() {
  const auto member = [](auto of_layer) { return at(&Case::layer, of_layer); };
  return of_products({
      word("model", member(&LayerShape::model), "a model of models.yaml",
           "whose layer shapes are used",
           {.fallback = "none", .when = of_model, .about = About::kX, .alone_in_ids = true}),
      {.doc = {"layers", "word or list", "layers of the model, or all", "all",
               "layers of `model`; each is one point"},
       .read = [](const Reader& reader, Case& target,
                  FieldContext&) { reader.word(target.layer.name); },
       .text = [](const Case& spec) { return spec.layer.name; },
       .is_said = of_model,
       .about = About::kX,
       .alone_in_ids = true},
      integer("layer.in", member(&LayerShape::in_features), 1, kMaxFeatures,
              "input features K of a layer of your own",
              {.fallback = "required without model", .when = of_own_shape, .about = About::kX}),
      field_of(
          "layer.out", "integer or list", member(&LayerShape::widths),
          fmt::format("1 to {} integers from 0 to {}", kMaxSlices, kMaxFeatures),
          "widths N of its slices; may be 0",
          {.fallback = "required without model", .when = of_own_shape},
          [](const Reader& reader, std::vector<std::int64_t>& target, FieldContext&) {
            reader.integers(target, 0, kMaxFeatures);
          },
          kListText),
      integer("layer.offset_start", member(&LayerShape::offset_start), 0, kMaxFeatures,
              "columns of y before the first slice", {.instead_of_layer = kOwnRows}),
      integer("layer.x_stride", member(&LayerShape::x_stride), 0, kMaxStride,
              "elements from a row of x to the next",
              {.also = ", at least the input features",
               .fallback = "0: the input features",
               .when = [](const Case& c) { return c.layer.x_stride != extent_of_x(c.layer); },
               .instead_of_layer = kOwnRows,
               .about = About::kX}),
      integer("layer.x_column_stride", member(&LayerShape::x_column_stride), 1, kMaxColumnStride,
              "elements from a column of x to the next; above 1 proved, not timed",
              {.instead_of_layer = kOwnOperands}),
      integer("layer.h_stride", member(&LayerShape::h_stride), 0, kMaxStride,
              "elements from a row of h to the next; with gaps proved, not timed",
              {.also = ", at least the lanes of a row",
               .fallback = "0: without gaps",
               .instead_of_layer = kOwnOperands}),
      integer("layer.y_stride", member(&LayerShape::y_stride), 0, kMaxStride,
              "elements from a row of y to the next",
              {.also = ", at least the columns of y",
               .fallback = "0: offset_start and all widths",
               .when = [](const Case& c) { return c.layer.y_stride != columns_of(c.layer); },
               .instead_of_layer = kOwnRows}),
  });
}

std::vector<Field> fields_of_batch() {
  const auto batch = [](auto of_batch) { return at(&Case::batch, of_batch); };
  return {
      integer("batch.decode", batch(&BatchSpec::decode), 0, kMaxTokens, "sequences of one token",
              {.when = always}),
      field_of(
          "batch.prefill", "integer or list", batch(&BatchSpec::prefill),
          fmt::format("lengths from 1 to {}, or COUNTxLENGTH, {} tokens in all", kMaxTokens,
                      kMaxTokens),
          "prompt chunks, one sequence each; 4x992 is four of 992 tokens", {},
          [](const Reader& reader, std::vector<std::int64_t>& target, FieldContext&) {
            reader.prefill(target, kMaxTokens);
          },
          kListText),
  };
}

std::vector<Field> fields_of_adapters() {
  const auto adapters = [](auto member) { return at(&Case::adapters, member); };
  return of_adapters({
      integer("adapters.slots", adapters(&AdapterSpec::slots), 1, kMaxSlots, "adapters resident",
              {.when = always}),
      integer("adapters.active", adapters(&AdapterSpec::active), 0, kMaxSlots,
              "exactly so many adapters are touched", {.also = "; 0 = as the law draws"}),
      field_of(
          "adapters.rank", "integer, list or map of shares", adapters(&AdapterSpec::rank),
          fmt::format("integers from 0 to {}, or {{rank: share, ...}} with shares that add up to 1",
                      kMaxRank),
          "ranks of the slots: one, a list that cycles over them, or shares of them",
          {.fallback = "16", .when = always},
          [](const Reader& reader, RankLaw& target, FieldContext&) {
            reader.rank(target, kMaxRank);
          },
          rank_text),
      integer("adapters.max_rank", adapters(&AdapterSpec::max_rank), 0, kMaxRank,
              "lanes stored per adapter",
              {.also = ", at least the largest rank",
               .fallback = "0: the largest rank",
               .when = always,
               .about = About::kProducts}),
      choice("adapters.padding", adapters(&AdapterSpec::padding),
             "lanes above an adapter's rank: NaN that nobody may read, or zeros that are computed "
             "with, as where an engine has one rank for all",
             {.instead_of_layer = "op linear", .about = About::kProducts}),
      field_of(
          "adapters.scale", "number or list", adapters(&AdapterSpec::scale),
          "numbers from -65536 to 65536",
          "factor on the delta: one, or a list that cycles over the slots", {.fallback = "1"},
          [](const Reader& reader, std::vector<double>& target, FieldContext&) {
            reader.scale(target);
          },
          kListText),
      field_of(
          "adapters.dtype", "word", adapters(&AdapterSpec::dtype), "bf16, fp16, fp32",
          "storage of A, B and bias, where that is another than of x and y",
          {.fallback = "as `dtype`", .instead_of_layer = "op linear", .about = About::kProducts},
          [](const Reader& reader, std::optional<Dtype>& target, FieldContext&) {
            Dtype chosen = Dtype::kBf16;
            reader.choice(chosen, {"bf16", "fp16", "fp32"});
            target = chosen;
          },
          [](const std::optional<Dtype>& dtype) {
            return std::string(dtype ? name(*dtype) : "none");
          }),
      boolean("adapters.bias", adapters(&AdapterSpec::bias), "a bias per adapter and slice",
              {.about = About::kProducts}),
      field_of(
          "adapters.bias_slices", "list", adapters(&AdapterSpec::bias_slices),
          "slices by number, from 0, ascending", "slices that have a bias, where not all have",
          {.fallback = "[]: all", .instead_of_layer = "op linear", .about = About::kProducts},
          [](const Reader& reader, std::vector<std::int64_t>& target, FieldContext&) {
            reader.integers(target, 0, kMaxSlices - 1);
          },
          kListText),
      boolean("adapters.rank0_bias", adapters(&AdapterSpec::rank0_bias),
              "adapters of rank 0 have a bias all the same, so that they act on their rows",
              {.instead_of_layer = "op linear", .about = About::kProducts}),
  });
}

// How A and B lie.
std::vector<Field> fields_of_placing() {
  const auto adapters = [](auto member) { return at(&Case::adapters, member); };
  return of_products({
      choice("adapters.placing", adapters(&AdapterSpec::placing),
             "each slice of A and B in a buffer of its own, or all of an adapter in one, at the "
             "largest rank or packed by the adapter's own; proved, not timed",
             {.instead_of_layer = kOwnOperands}),
      integer("adapters.a_stride", adapters(&AdapterSpec::a_stride), 0, kMaxStride,
              "elements from a lane of A to the next; with gaps proved, not timed",
              {.also = ", at least the input features",
               .fallback = "0: without gaps",
               .instead_of_layer = kOwnOperands}),
      integer("adapters.b_stride", adapters(&AdapterSpec::b_stride), 0, kMaxStride,
              "elements from an output of B to the next; with gaps proved, not timed",
              {.also = ", at least max_rank",
               .fallback = "0: without gaps",
               .instead_of_layer = kOwnOperands}),
  });
}

// Who uses which adapter, and in which order.
std::vector<Field> fields_of_use() {
  const auto read_skew = [](const Reader& reader, SkewLaw& target, FieldContext& context) {
    reader.skew(target, context.traces, context.folder);
  };
  return of_adapters({
      field_of("skew", "word or map", at(&Case::skew), kLawNames,
               "the law by which sequences choose adapters", {.when = always, .alone_in_ids = true},
               read_skew, skew_text),
      field_of(
          "prefill_skew", "word or map", at(&Case::prefill_skew), "as `skew`",
          "the law for prefill sequences",
          {.fallback = "as `skew`",
           .when = [](const Case& c) { return skew_text(c.prefill_skew) != skew_text(c.skew); }},
          read_skew, skew_text),
      share("no_adapter", at(&Case::no_adapter), "share of the sequences without an adapter"),
      choice("order", at(&Case::order), "order of the rows",
             {.when = always, .alone_in_ids = true}),
  });
}

std::vector<Field> fields_of_run() {
  return {
      field_of(
          "seed", "integer", at(&Case::seed), "an integer from 0 to 18446744073709551615",
          "all that is drawn follows from it", {.when = always},
          [](const Reader& reader, std::uint64_t& target, FieldContext&) { reader.seed(target); },
          kPlainText),
      field_of(
          "backends", "word or list", at(&Case::backends),
          "names as `lora-bench list backends` prints them", "implementations to run",
          {.fallback = "[]: every GPU backend where there is a GPU, else cpu",
           .when = [](const Case& spec) { return !spec.backends.empty(); }},
          [](const Reader& reader, std::vector<std::string>& target, FieldContext& context) {
            reader.words(target, context.check_backend);
          },
          kListText),
  };
}

constexpr const char* kTuning = "tuning";

// A row that writes all of a tuning; fields_with has those that read it.
std::vector<Field> fields_of_tuning() {
  return {{{kTuning, "map", "knobs of backend `auto`", "", ""},
           {},
           [](const Case& spec) { return fmt::format("{{{}}}", tuning_text(spec.tuning)); },
           [](const Case& spec) { return !spec.tuning.empty(); }}};
}

Field field_of_knob(const Knob& knob) {
  const auto read = [knob](const Reader& reader, Case& target, FieldContext&) {
    std::string word;
    if (knob.most > 0) {
      std::int64_t number = 0;
      reader.integer(number, 0, knob.most);
      word = number == 0 ? "" : std::to_string(number);
    } else if (knob.words.empty()) {
      reader.word(word);
    } else {
      reader.choice(word, knob.words);
      word = word == knob.words.front() ? "" : word;
    }
    if (!word.empty()) {
      target.tuning.push_back({last_part(knob.doc.path), word});
    }
  };
  return {knob.doc, read};
}

std::vector<Field> fields_of_thresholds() {
  std::vector<Field> rows;
  for (const ThresholdField& row : kThresholdFields) {
    rows.push_back(field_of(
        std::string("thresholds.") + row.name, "number", at(&Case::thresholds, row.value),
        row.allowed, row.meaning, {},
        [most = row.most](const Reader& reader, std::optional<double>& target, FieldContext&) {
          reader.optional_real(target, 0, most);
        },
        kOptionalText));
  }
  rows.push_back(field_of(
      "thresholds.max_regression", "share", at(&Case::thresholds, &Thresholds::max_regression),
      "a share from 0 to 1, or 0% to 100%; write 3% for three percent",
      "fail when slower than the compared run by more", {},
      [](const Reader& reader, std::optional<double>& target, FieldContext&) {
        reader.optional_share(target, 1);
      },
      kOptionalText));
  return rows;
}

std::vector<Field> fields_of_settings() {
  const auto verify = [](auto of_verify) { return at(&Case::verify, of_verify); };
  const auto measure = [](auto of_measure) { return at(&Case::measure, of_measure); };
  return {
      boolean("verify.enabled", verify(&VerifySettings::enabled),
              "prove each result; without, a row is MISTRUSTED; short form `verify: false`"),
      boolean("verify.relations", verify(&VerifySettings::relations),
              "level 3 in `run` too; `verify` always does it"),
      integer("verify.max_rows", verify(&VerifySettings::max_rows), 1, kMaxTokens,
              "rows compared in full; of more a sample by stratum"),
      real("verify.timeout_s", verify(&VerifySettings::timeout_s), 0.001, 86400,
           "watchdog for a case and backend"),
      boolean("measure.enabled", measure(&MeasureSettings::enabled),
              "time what was proved; short form `measure: false`"),
      choice("measure.mode", measure(&MeasureSettings::mode), "how a GPU is launched"),
      choice("measure.cache", measure(&MeasureSettings::cache),
             "what the caches hold when a launch starts"),
      real("measure.warmup_ms", measure(&MeasureSettings::warmup_ms), 0, kMaxMilliseconds,
           "launches before samples"),
      integer("measure.min_samples", measure(&MeasureSettings::min_samples), 1, 1000000,
              "samples at least", {.also = ", at most max_samples"}),
      integer("measure.max_samples", measure(&MeasureSettings::max_samples), 1, 1000000,
              "samples at most"),
      real("measure.min_time_ms", measure(&MeasureSettings::min_time_ms), 0, kMaxMilliseconds,
           "sampling goes on at least so long", {.also = ", at most max_time_ms"}),
      real("measure.max_time_ms", measure(&MeasureSettings::max_time_ms), 0, kMaxMilliseconds,
           "and at most so long"),
      share("measure.noise_target", measure(&MeasureSettings::noise_target),
            "stop early once the median is known so well"),
      boolean("measure.phases", measure(&MeasureSettings::phases),
              "time shrink and expand of a linear op, or of a layer, by themselves as well"),
  };
}

}  // namespace

std::string_view why_no_field(const Field& field, Op op) {
  const bool has_x = has_products(op) || op == Op::kQuantise;
  switch (field.about) {
    case About::kAnyOp:
      return "";
    case About::kAdapters:
      return has_adapters(op) ? "" : "has no adapters";
    case About::kX:
      return has_x ? "" : "multiplies nothing";
    case About::kProducts:
      return has_products(op) ? "" : "multiplies nothing";
  }
  return "";
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

const Fields& fields() {
  static const Fields all = [] {
    Fields table;
    for (const auto part :
         {fields_of_file, fields_of_op, fields_of_shape, fields_of_layer, fields_of_metadata,
          fields_of_batch, fields_of_adapters, fields_of_placing, fields_of_eight_bits,
          fields_of_quantiser, fields_of_use, fields_of_experts, fields_of_plan, fields_of_run,
          fields_of_tuning, fields_of_thresholds, fields_of_settings}) {
      for (Field& field : part()) {
        table.push_back(std::move(field));
      }
    }
    return table;
  }();
  return all;
}

Fields fields_with(const std::vector<Knob>& knobs) {
  Fields table;
  for (const Field& field : fields()) {
    if (field.doc.path != kTuning) {
      table.push_back(field);
      continue;
    }
    for (const Knob& knob : knobs) {
      table.push_back(field_of_knob(knob));
    }
  }
  return table;
}

const Field* find_field(const Fields& fields, const std::string& path) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& field) { return field.doc.path == path; });
  return found == fields.end() ? nullptr : &*found;
}

bool is_group(const Fields& fields, const std::string& path) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& field) { return field.doc.path.starts_with(path + "."); });
}

std::string nearest_field(const Fields& fields, const std::string& path) {
  // The right word in the wrong group ("rank" at the top) is likelier than a misspelling.
  std::vector<std::string> paths;
  for (const Field& field : fields) {
    if (last_part(field.doc.path) == last_part(path)) {
      return field.doc.path;
    }
    // A group comes before its fields: "adapter" is cut short of both.
    const std::size_t dot = field.doc.path.find('.');
    if (dot != std::string::npos) {
      paths.push_back(field.doc.path.substr(0, dot));
    }
    paths.push_back(field.doc.path);
  }
  const std::string near_path = nearest(path, paths);
  if (!near_path.empty()) {
    return near_path;
  }
  std::vector<std::string> parts;
  for (const Field& field : fields) {
    parts.push_back(last_part(field.doc.path));
  }
  const std::string near_part = nearest(last_part(path), parts);
  const auto found = std::find(parts.begin(), parts.end(), near_part);
  return near_part.empty() ? "" : fields[static_cast<std::size_t>(found - parts.begin())].doc.path;
}

std::vector<FieldDoc> scenario_fields(const std::vector<Knob>& knobs) {
  std::vector<FieldDoc> docs;
  for (const Field& field : fields_with(knobs)) {
    docs.push_back(field.doc);
  }
  return docs;
}

}  // namespace lora_bench
